"""Folders that are filled under a temporary name and published in one step, and the cache that holds some of them."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from taugate.storage.locks import EXCLUSIVE, SHARED, acquire

# A writer locks its folder right after making it; one that has been without a lock for this long has no living writer.
_UNLOCKED_SECONDS = 60
# Where nothing can be locked, age has to do: the longest fill, an export or a copy of a release, takes minutes.
_STALE_SECONDS = 24 * 3600


@contextmanager
def staging_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make an empty folder to fill, and remove it afterwards unless it was published.

    Folders of the same prefix that killed writers left behind are removed first.

    parent: the folder to make it in, which is made where needed. prefix: the start of its name. Raises OSError.
    """
    parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(parent, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            acquire(descriptor, SHARED)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the staging folders whose writers were killed.

    parent: the folder they are in. prefix: the start of their names.
    """
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # its writer may be publishing it right now, or it is another user's
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    age = time.time() - folder.stat().st_mtime
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return age > _UNLOCKED_SECONDS and acquire(descriptor, EXCLUSIVE)
    except OSError:  # NFS locks no folder exclusively
        return age > _STALE_SECONDS
    finally:
        os.close(descriptor)


def publish(folder: Path, target: Path) -> None:
    """Rename a staging folder to its final name.

    folder: the staging folder. target: its final path, on the same file system; where another writer has published the
    same there already, that one stays. Raises OSError.
    """
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def cache_folder() -> Path:
    """Return the folder for what can be made again: TAUGATE_CACHE, else taugate in the user's cache directory.

    The user's cache directory is that of the XDG Base Directory specification.
    """
    if chosen := os.environ.get("TAUGATE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "taugate"
