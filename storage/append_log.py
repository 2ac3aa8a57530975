"""Logs of one record a line that several processes append to, and that survive a writer killed in the middle of one."""

import os
from contextlib import suppress


def append_lines(descriptor: int, lines: bytes) -> None:
    """Append lines to a log, all of them or none.

    Where the last writer was killed in the middle of a line, its torn line is ended first, so that it spoils no other.
    The caller has the log locked, and calls fsync where the lines must survive a power cut.

    descriptor: of the log, open for reading and for appending (O_RDWR | O_APPEND). lines: whole lines, each with its
    line break. Raises OSError, as where the disk is full.
    """
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        lines = b"\n" + lines
    try:
        while lines:
            lines = lines[os.write(descriptor, lines) :]
    except OSError:
        with suppress(OSError):  # a pipe, for one, cannot be truncated
            os.ftruncate(descriptor, size)
        raise
