"""File locks (flock): shared or exclusive, with a deadline and the name of the holder."""

import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from taugate.errors import ReleaseError
from taugate.storage.files import UNSUPPORTED, set_mode

_LOG = logging.getLogger(__name__)
_NO_LOCKS = UNSUPPORTED | {errno.ENOLCK}  # ENOLCK: NFS without lockd
SHARED, EXCLUSIVE = fcntl.LOCK_SH, fcntl.LOCK_EX
_POLL_SECONDS = 0.02  # flock has no timeout, so it is polled


def acquire(descriptor: int, mode: int, seconds: float = 0) -> bool:
    """Lock an open file; returns False if another descriptor still holds the lock at the deadline.

    Two descriptors also exclude each other within one process. Closing a descriptor releases its lock.

    Args:
        descriptor: Descriptor of the file; on NFS, an exclusive lock requires a writable one.
        mode: SHARED or EXCLUSIVE.
        seconds: Timeout.

    Raises:
        OSError: If the file system has no locks.
    """
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
    """Open a file, or create it with its directory's read and write permissions, and return the descriptor.

    All users who may change the directory may then open the file, whatever the umask.

    Args:
        path: File to open; a symbolic link is refused.
        flags: Flags of `os.open`.

    Raises:
        ReleaseError: If the directory is not writable.
    """
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
        seconds: Timeout.
        busy: Makes the error that is raised after the timeout, from the name of the holder.
        temporary: Remove the file before the lock is released.

    Raises:
        ReleaseError: If the directory is not writable.
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
    """Lock an open file exclusively like `acquire`, but on a volume without locks, warn and return True.

    Args:
        descriptor: Descriptor of the file.
        folder: Folder for the warning.
        seconds: Timeout.

    Raises:
        OSError: If locking fails for another reason.
    """
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
