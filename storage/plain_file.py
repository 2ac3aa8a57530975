"""Small files that others read or wrote: read up to a bound where they are plain, replaced in one step."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

# A link is not followed, and a pipe that nobody writes to does not hold up who opens it. Windows has neither.
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


@contextmanager
def open_plain(path: Path) -> Iterator[tuple[BufferedReader, int]]:
    """A plain file and its size in bytes. Raises OSError, FileNotFoundError where there is none."""
    descriptor = os.open(path, _FLAGS)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file, found.st_size
    finally:
        os.close(descriptor)


def read_plain(path: Path, most: int) -> bytes:
    """The bytes of a plain file of at most `most`. Raises OSError, also where there are more."""
    with open_plain(path) as (file, _):
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"{path}: more than {most} bytes")
    return content


def put_plain(path: Path, content: bytes, staging: Path) -> None:
    """Replace a file in one step, readable by all; what is half written is in the folder `staging`. Raises OSError."""
    partial = staging / path.name
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.chmod(0o644)  # whoever serves may be another user
    partial.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # so that the new name survives a power cut
    finally:
        os.close(descriptor)
