"""Locks on files (flock): shared or exclusive, with a deadline, and with the name of whoever has the lock."""

import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from taugate.errors import ReleaseError
from taugate.storage.files import UNSUPPORTED, set_mode

_LOG = logging.getLogger(__name__)
_NO_LOCKS = UNSUPPORTED | {errno.ENOLCK}  # ENOLCK: NFS without lockd
SHARED, EXCLUSIVE = fcntl.LOCK_SH, fcntl.LOCK_EX
_POLL_SECONDS = 0.02  # flock has no deadline of its own; nobody notices a fiftieth of a second


def acquire(descriptor: int, mode: int, seconds: float = 0) -> bool:
    """Lock an open file; returns False where another descriptor still has it locked at the deadline.

    Two descriptors exclude each other also within one process, and closing one releases its lock.

    Args:
        descriptor: Of the open file; on NFS, an exclusive lock takes one that can write.
        mode: SHARED or EXCLUSIVE.
        seconds: How long to wait.

    Raises:
        OSError: Where the file system has no locks.
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
    """Tell whether an open file still has this path: by the time a lock is granted, the file may have been removed.

    Args:
        descriptor: Of the open file.
        path: Where it was opened.
    """
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def open_or_create(path: Path, flags: int) -> int:
    """Open a file, or create it with its directory's own read and write permissions, whatever the umask.

    So all users who may change the directory may open the file.

    Args:
        path: The file; a symbolic link is refused.
        flags: As of `os.open`.

    Returns:
        A descriptor.

    Raises:
        ReleaseError: Where the directory cannot be written to.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        descriptor = os.open(path, flags | os.O_CREAT, 0o600)
    except OSError as error:
        raise ReleaseError(
            f"{path.parent}: cannot be changed from here ({error.strerror}: {path.name}); run this where it is writable"
        ) from error
    if os.fstat(descriptor).st_uid == os.geteuid():
        set_mode(descriptor, path.parent.stat().st_mode & 0o666)
    return descriptor


@contextmanager
def exclusive_lock(path: Path, seconds: float) -> Iterator[str | None]:
    """Lock a file exclusively; yields None with the lock, or, past the deadline, the name of the process that has it.

    On a volume without locks it yields None as well, and a warning says that nothing keeps two commands apart.

    Args:
        path: The lock file, created where needed; whoever has the lock may remove it.
        seconds: How long to wait.

    Raises:
        ReleaseError: Where the directory cannot be written to.
    """
    while True:
        descriptor = open_or_create(path, os.O_RDWR)
        try:
            if not acquire_if_possible(descriptor, path.parent, seconds):
                yield os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
                return
            if not is_at(descriptor, path):  # removed by its last holder, and perhaps created again
                continue
            with suppress(OSError):  # the name only helps others; a full disk must not keep anyone from pruning
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            yield None
            return
        finally:
            os.close(descriptor)


def acquire_if_possible(descriptor: int, folder: Path, seconds: float = 0) -> bool:
    """Lock an open file exclusively, as `acquire` does; on a volume without locks, warn and return True.

    Args:
        descriptor: Of the open file.
        folder: That the warning names.
        seconds: How long to wait.

    Raises:
        OSError: For any other failure.
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
        "%s: its file system has no locks (flock: %s), so run one command at a time there: nothing keeps a second one "
        "from writing to it",
        folder,
        reason,
    )
