"""Folders that are filled under a temporary name and published atomically, the cache folder, and file locks."""

import errno
import fcntl
import logging
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from taugate.errors import InputError, ReleaseError
from taugate.storage.files import UNSUPPORTED, set_mode

_LOG = logging.getLogger(__name__)
_NO_LOCKS = UNSUPPORTED | {errno.ENOLCK}  # ENOLCK: NFS without lockd
SHARED, EXCLUSIVE = fcntl.LOCK_SH, fcntl.LOCK_EX
_POLL_SECONDS = 0.02  # flock has no timeout, so it is polled
# A writer locks its folder right after creating it, so a folder unlocked for this long has no living writer.
_UNLOCKED_SECONDS = 60
# Without locks, age decides: the longest fill, an export or a copy of a release, takes minutes.
_STALE_SECONDS = 24 * 3600


def acquire(descriptor: int, mode: int, seconds: float = 0) -> bool:
    """Lock an open file; returns False if another descriptor still holds the lock at the deadline."""
    # Two descriptors also exclude each other within one process. Closing a descriptor releases its lock.
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file is still at its path; it may have been removed before a lock was granted."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def open_or_create(path: Path, flags: int) -> int:
    """Open a file, or create it with its directory's read and write permissions, and return the descriptor."""
    # All users who may change the directory may then open the file, whatever the umask.
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        descriptor = os.open(path, flags | os.O_CREAT, 0o600)
    except OSError as error:
        raise ReleaseError(
            f"{path.parent}: is not writable ({error.strerror}: {path.name}); run the command where it is"
        ) from error
    if os.fstat(descriptor).st_uid == os.geteuid():
        set_mode(descriptor, path.parent.stat().st_mode & 0o666)
    return descriptor


@contextmanager
def exclusive_lock(
    path: Path, seconds: float, busy: Callable[[str], Exception], *, temporary: bool = False
) -> Iterator[None]:
    """Lock a file exclusively.

    On a volume without locks it does nothing but log a warning that commands are not kept apart.

    Args:
        path: Lock file, created if needed.
        busy: Makes the error that is raised after the timeout, from the name of the holder.
        temporary: Remove the file before the lock is released.
    """
    while True:
        descriptor = open_or_create(path, os.O_RDWR)
        try:
            if not acquire_if_possible(descriptor, path.parent, seconds):
                raise busy(os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process")
            if not is_at(descriptor, path):  # its last holder removed it, and it may exist again
                continue
            with suppress(OSError):  # the name is only informative; pruning must work on a full disk
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            try:
                yield
            finally:
                if temporary:  # by its holder, so that no other process's lock is removed
                    path.unlink(missing_ok=True)
            return
        finally:
            os.close(descriptor)


def acquire_if_possible(descriptor: int, folder: Path, seconds: float = 0) -> bool:
    """Lock an open file exclusively like `acquire`, but on a volume without locks, warn and return True."""
    try:
        return acquire(descriptor, EXCLUSIVE, seconds)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _warn_of_missing_locks(folder, str(error.strerror))
        return True


@cache
def _warn_of_missing_locks(folder: Path, reason: str) -> None:
    _LOG.warning(
        "%s: the file system has no locks (flock: %s); run one command at a time there, because simultaneous ones can "
        "overwrite each other's files",
        folder,
        reason,
    )


@contextmanager
def staging_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Create an empty folder to fill, and remove it afterwards unless it was published."""
    # Abandoned folders with the same prefix are removed first.
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
    """Create a folder that the user has named, and its parents. Raises InputError if it cannot be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be created ({error.strerror}); name a writable folder") from error


def publish_folder(folder: Path, target: Path) -> None:
    """Rename a staging folder to its final path on the same file system."""
    # If another writer has published the folder already, that one is kept.
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
    """Return the cache folder, which need not exist."""
    # It is TAUGATE_CACHE, else `taugate` in the user's cache directory: XDG_CACHE_HOME, else `.cache` in the home
    # directory (XDG Base Directory specification). If that is unknown or not writable, as for a container's user
    # without a name, it is a private folder among the temporary files, with one warning per process.
    if chosen := os.environ.get("TAUGATE_CACHE"):
        return Path(chosen)
    folder = _user_cache()
    if folder is not None and _is_writable(folder):
        return folder / "taugate"
    return _temporary_cache("this user has no home directory" if folder is None else f"{folder} is not writable")


def set_missing_home() -> None:
    """Set HOME to a private folder among the temporary files if the user has no home directory."""
    # Without HOME and an entry in the user database, libraries that write to `~` write to a folder of that name in the
    # working directory, or fail. A HOME that is set is not changed.
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
    """Create a folder among the temporary files that only this user can write to."""
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


def write_cached(cached: Path, fill: Callable[[Path], None]) -> None:
    """Fill the folder `cached` of an encoder, which appears complete or not at all."""
    try:
        with staging_folder(cached.parent, ".export-") as staging:
            fill(staging)
            publish_folder(staging, cached)
    except OSError as error:
        raise InputError(
            f"{cached.parent}: cannot store the exported encoder ({error}); set TAUGATE_CACHE to another folder"
        ) from error


def check_releases_exist(releases: Path) -> None:
    """Raise ReleaseError if there is no such directory."""
    if not releases.is_dir():
        raise ReleaseError(f"{releases}: no such directory; `taugate calibrate DATA --releases {releases}` creates it")
