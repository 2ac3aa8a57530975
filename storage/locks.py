"""A file that one process at a time has, and that says which."""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from taugate.errors import ReleaseError

SHARED, ALONE = fcntl.LOCK_SH, fcntl.LOCK_EX
_POLL_SECONDS = 0.02  # flock has no deadline of its own; nobody notices a fiftieth of a second


def acquire(descriptor: int, kind: int, seconds: float = 0) -> bool:
    """Lock an open file, SHARED or ALONE; False when others still keep it after `seconds`.

    Two descriptors lock each other out also within one process. Raises OSError where the file system has no locks; on
    NFS, ALONE takes a descriptor that can write.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file still has this path: who waited for a lock may hold that of a file which is gone."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def open_shared(path: Path, flags: int) -> int:
    """A descriptor; a file that is not there is made, with the directory's own read and write bits, whatever the umask.

    Raises ReleaseError where the directory cannot be written to.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        descriptor = os.open(path, flags | os.O_CREAT, 0o600)
    except OSError as error:
        raise ReleaseError(
            f"{path.parent}: cannot be changed from here ({error.strerror}: {path.name}); run this where it can be "
            "written to"
        ) from error
    if os.fstat(descriptor).st_uid == os.geteuid():
        os.fchmod(descriptor, path.parent.stat().st_mode & 0o666)
    return descriptor


@contextmanager
def alone(path: Path, seconds: float) -> Iterator[str | None]:
    """Have a file alone; yields None, or, where others still have it after `seconds`, who that is.

    Raises ReleaseError where the directory cannot be written to.
    """
    while True:
        descriptor = open_shared(path, os.O_RDWR)
        try:
            if not acquire(descriptor, ALONE, seconds):
                yield os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
                return
            if not is_at(descriptor, path):  # removed by its last holder, and perhaps made anew
                continue
            with suppress(OSError):  # who it is helps others only; a full disk must not keep anyone from pruning
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            yield None
            return
        finally:
            os.close(descriptor)
