"""Files that others may have put there: opened once, only where they are plain, and never read beyond a bound."""

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
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path}: not a plain file")
        yield file, found.st_size


def read_plain(path: Path, most: int) -> bytes:
    """The bytes of a plain file of at most `most`. Raises OSError, also where there are more."""
    with open_plain(path) as (file, _):
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"{path}: more than {most} bytes")
    return content
