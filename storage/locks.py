"""Locks on files (flock): shared or exclusive, with a deadline, and with the name of whoever has the lock."""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from taugate.errors import ReleaseError

SHARED, EXCLUSIVE = fcntl.LOCK_SH, fcntl.LOCK_EX
_POLL_SECONDS = 0.02  # flock has no deadline of its own; nobody notices a fiftieth of a second


def acquire(descriptor: int, mode: int, seconds: float = 0) -> bool:
    """Lock an open file; returns False where another descriptor still has it locked at the deadline.

    Two descriptors exclude each other also within one process, and closing one releases its lock.

    descriptor: of the open file; on NFS, an exclusive lock takes one that can write. mode: SHARED or EXCLUSIVE.
    seconds: how long to wait. Raises OSError where the file system has no locks.
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

    descriptor: of the open file. path: where it was opened.
    """
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def open_or_create(path: Path, flags: int) -> int:
    """Open a file, or create it with its directory's own read and write permissions, whatever the umask.

    So all users who may change the directory may open the file. Returns a descriptor.

    path: the file; a symbolic link is refused. flags: as of `os.open`. Raises ReleaseError where the directory cannot
    be written to.
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
        os.fchmod(descriptor, path.parent.stat().st_mode & 0o666)
    return descriptor


@contextmanager
def exclusive_lock(path: Path, seconds: float) -> Iterator[str | None]:
    """Lock a file exclusively; yields None with the lock, or, past the deadline, the name of the process that has it.

    path: the lock file, created where needed; whoever has the lock may remove it. seconds: how long to wait. Raises
    ReleaseError where the directory cannot be written to.
    """
    while True:
        descriptor = open_or_create(path, os.O_RDWR)
        try:
            if not acquire(descriptor, EXCLUSIVE, seconds):
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
