"""A file that one process at a time has, and that says which."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from taugate.storage.flock import ALONE, acquire, is_at
from taugate.storage.shared import open_shared


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
