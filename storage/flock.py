"""Advisory locks on open files: the kernel gives them back when their holder ends, however it ends."""

import fcntl
import os
import time
from pathlib import Path

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
