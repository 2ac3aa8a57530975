"""Folders that appear whole or not at all: filled under a name that nobody reads, then renamed."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from taugate.storage.flock import ALONE, SHARED, acquire

# A writer locks its folder right after making it; one that has been without a lock for this long has no living writer.
_UNLOCKED_SECONDS = 60
# Where nothing can be locked, age has to do: the longest fill, an export or a copy of a release, takes minutes.
_STALE_SECONDS = 24 * 3600


@contextmanager
def staging_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """An empty folder in `parent`, which is made where needed; gone afterwards unless it was published.

    What writers left that were killed is cleared away.
    """
    parent.mkdir(parents=True, exist_ok=True)
    clear_left(parent, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            acquire(descriptor, SHARED)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def clear_left(parent: Path, prefix: str) -> None:
    """Remove the staging folders in `parent` whose writers were killed."""
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # its writer may be publishing it right now, or it is another user's
            if _is_left(left):
                shutil.rmtree(left, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    age = time.time() - folder.stat().st_mtime
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return age > _UNLOCKED_SECONDS and acquire(descriptor, ALONE)
    except OSError:  # NFS locks no folder alone
        return age > _STALE_SECONDS
    finally:
        os.close(descriptor)


def publish(folder: Path, target: Path) -> None:
    """Give a staging folder its name. Where `target` is there already, another writer made the same: that one stays."""
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise
