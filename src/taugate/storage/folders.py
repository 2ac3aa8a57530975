"""Folders that are filled under a temporary name and published in one step, and the cache that holds some of them."""

import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from taugate.errors import InputError
from taugate.storage.locks import EXCLUSIVE, SHARED, acquire

_LOG = logging.getLogger(__name__)
# A writer locks its folder right after making it; one that has been without a lock for this long has no living writer.
_UNLOCKED_SECONDS = 60
# Where nothing can be locked, age has to do: the longest fill, an export or a copy of a release, takes minutes.
_STALE_SECONDS = 24 * 3600


@contextmanager
def staging_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make an empty folder to fill, and remove it afterwards unless it was published.

    Folders of the same prefix that killed writers left behind are removed first.

    Args:
        parent: The folder to make it in, which is made where needed.
        prefix: The start of its name.

    Raises:
        OSError: .
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

    Args:
        parent: The folder they are in.
        prefix: The start of their names.
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


def make_folder(folder: Path) -> None:
    """Make a folder that a user has named, and those above it.

    Raises:
        InputError: If that is not possible there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be made ({error.strerror}); name a folder that can be written to"
        ) from error


def publish(folder: Path, target: Path) -> None:
    """Rename a staging folder to its final name.

    Args:
        folder: The staging folder.
        target: Its final path, on the same file system; where another writer has published the same there already, that
            one stays.

    Raises:
        OSError: .
    """
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def cache_folder() -> Path:
    """Return the folder for what can be made again, which need not exist.

    It is TAUGATE_CACHE, else `taugate` in the user's cache directory: XDG_CACHE_HOME, else `.cache` in the home
    directory (XDG Base Directory specification). If that is not known or cannot be written to, as for a container's
    user without a name, it is a private folder among the temporary files, and a warning says so once per process.

    Raises:
        InputError: If others can write to that private folder, OSError if there is none for temporary files.
    """
    if chosen := os.environ.get("TAUGATE_CACHE"):
        return Path(chosen)
    folder = _user_cache()
    if folder is not None and _can_be_written(folder):
        return folder / "taugate"
    return _temporary_cache("this user has no home directory" if folder is None else f"{folder} cannot be written to")


def set_missing_home() -> None:
    """Give a user without a home directory a private one among the temporary files, for libraries that write to `~`.

    Without HOME and without an entry in the user database, they write to a folder named `~` in the working directory,
    or end in an error. A HOME that is set is left alone.
    """
    if _home() is None:
        with suppress(OSError, InputError):  # said by `cache_folder`, if a cache is needed at all
            os.environ["HOME"] = str(_private_folder())


def _home() -> Path | None:
    """Return the user's home directory, None if neither HOME nor the user database names one."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home if home.is_absolute() and home.name != _private_name() else None


def _user_cache() -> Path | None:
    """Return the user's cache directory, None if it is not known; a relative XDG_CACHE_HOME is to be ignored."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME") or ".")
    if chosen.is_absolute():
        return chosen
    home = _home()
    return None if home is None else home / ".cache"


def _can_be_written(folder: Path) -> bool:
    """Tell whether files can be made in a folder, or the folder can be made. Nothing is made."""
    for path in (folder, *folder.parents):
        try:
            path.stat()
        except FileNotFoundError:
            continue
        except OSError:
            return False
        return path.is_dir() and os.access(path, os.W_OK | os.X_OK)
    return False


def _private_name() -> str:
    return f"taugate-{os.geteuid()}"


def _private_folder() -> Path:
    """Make a folder among the temporary files that this user alone can write to.

    Raises:
        InputError: .
        OSError: .
    """
    folder = Path(tempfile.gettempdir()) / _private_name()
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise InputError(f"{folder}: others can write to it; name a folder for the cache in TAUGATE_CACHE")
    return folder


@cache
def _temporary_cache(why: str) -> Path:
    folder = _private_folder() / "cache"
    _LOG.warning("%s, so the cache is %s; to keep it longer, name a folder in TAUGATE_CACHE", why, folder)
    return folder
