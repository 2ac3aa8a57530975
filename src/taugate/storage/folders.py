"""Folders that are filled under a temporary name and published atomically, and the cache folder."""

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
# A writer locks its folder right after creating it, so a folder unlocked for this long has no living writer.
_UNLOCKED_SECONDS = 60
# Without locks, age decides: the longest fill, an export or a copy of a release, takes minutes.
_STALE_SECONDS = 24 * 3600


@contextmanager
def staging_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Create an empty folder to fill, and remove it afterwards unless it was published.

    Abandoned folders with the same prefix are removed first.

    Args:
        parent: Folder to create it in, which is created if needed.
        prefix: Start of its name.
    """
    parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(parent, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # the file system has no locks
            acquire(descriptor, SHARED)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove staging folders of killed writers, whose names start with `prefix`, from a folder."""
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # it may be being published, or belong to another user
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    age = time.time() - folder.stat().st_mtime
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return age > _UNLOCKED_SECONDS and acquire(descriptor, EXCLUSIVE)
    except OSError:  # NFS cannot lock folders exclusively
        return age > _STALE_SECONDS
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder that the user has named, and its parents.

    Raises:
        InputError: If it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be created ({error.strerror}); name a writable folder") from error


def publish_folder(folder: Path, target: Path) -> None:
    """Rename a staging folder to its final path on the same file system.

    If another writer has published the folder already, that one is kept.
    """
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def link_or_copy(source: Path, target: Path) -> None:
    """Make a file available under a second name, as a copy if the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def cache_folder() -> Path:
    """Return the cache folder, which need not exist.

    It is TAUGATE_CACHE, else `taugate` in the user's cache directory: XDG_CACHE_HOME, else `.cache` in the home
    directory (XDG Base Directory specification). If that is unknown or not writable, as for a container's user without
    a name, it is a private folder among the temporary files, with one warning per process.

    Raises:
        InputError: If others can write to that private folder.
        OSError: If there is no folder for temporary files.
    """
    if chosen := os.environ.get("TAUGATE_CACHE"):
        return Path(chosen)
    folder = _user_cache()
    if folder is not None and _is_writable(folder):
        return folder / "taugate"
    return _temporary_cache("this user has no home directory" if folder is None else f"{folder} is not writable")


def set_missing_home() -> None:
    """Set HOME to a private folder among the temporary files if the user has no home directory.

    Without HOME and an entry in the user database, libraries that write to `~` write to a folder of that name in the
    working directory, or fail. A HOME that is set is not changed.
    """
    if _home() is None:
        with suppress(OSError, InputError):  # `cache_folder` reports it if a cache is needed
            os.environ["HOME"] = str(_private_folder())


def _home() -> Path | None:
    """Return the user's home directory, None if neither HOME nor the user database names one."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home if home.is_absolute() and home.name != _private_name() else None


def _user_cache() -> Path | None:
    """Return the user's cache directory, None if it is unknown; a relative XDG_CACHE_HOME is ignored."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME") or ".")
    if chosen.is_absolute():
        return chosen
    home = _home()
    return None if home is None else home / ".cache"


def _is_writable(folder: Path) -> bool:
    """Return whether files can be created in a folder, or the folder itself, without creating anything."""
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
    """Create a folder among the temporary files that only this user can write to.

    Raises:
        InputError: If others can write to it.
        OSError: If it cannot be created.
    """
    folder = Path(tempfile.gettempdir()) / _private_name()
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise InputError(f"{folder}: others can write to it; set TAUGATE_CACHE to a private folder")
    return folder


@cache
def _temporary_cache(reason: str) -> Path:
    folder = _private_folder() / "cache"
    _LOG.warning("%s; using the temporary cache %s; set TAUGATE_CACHE to keep the cache", reason, folder)
    return folder
