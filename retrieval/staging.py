"""Folders that appear whole or not at all: filled under a name that nobody reads, then renamed."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# A staging folder this old has no living writer: the longest fill, an export or a copy of a release, takes minutes.
_STALE_SECONDS = 24 * 3600


@contextmanager
def staging_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """An empty folder in `parent`, which is made where needed; gone afterwards unless it was published.

    What writers left that were killed is cleared away once it is a day old.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{prefix}*"):
        with suppress(FileNotFoundError):  # its writer may be publishing it right now
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, target: Path) -> None:
    """Give a staging folder its name. Where `target` is there already, another writer made the same: that one stays."""
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise
