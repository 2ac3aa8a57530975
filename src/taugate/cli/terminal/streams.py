"""The standard streams of a command: any of them may be closed, and whoever reads them may leave at any time.

Results go to stdout: if its reader leaves, as `| head` does, the command ends as a program does that SIGPIPE ends, but
cleans up. What goes to stderr only informs, so that no work is lost because nobody reads it.
"""

import io
import os
import select
import sys
from contextlib import suppress

READER_GONE = 141  # exit code: what shells report of a program that SIGPIPE ended


class _LossyStderr(io.FileIO):
    """File descriptor 2, without errors: lines are lost if the disk is full, or if nobody reads them."""

    def write(self, data: "io.ReadableBuffer", /) -> int:  # type: ignore[name-defined]  # of typeshed alone
        """Write bytes, and return how many there were."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        with suppress(OSError):
            while rest:  # a signal may end a write to a full pipe in the middle of a line
                written = super().write(rest)
                if written is None:  # the stream does not block, and its reader is behind
                    break
                rest = rest[written:]
        return size


def prepare_streams() -> None:
    """Open the streams that are closed, on the null device, and let no write to stderr fail.

    A file that is opened later would have the number of a closed stream otherwise, and be written into.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            os.set_inheritable(number, True)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    encoding = sys.stderr.encoding if sys.stderr else "utf-8"
    raw = _LossyStderr(2, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(raw, encoding, "backslashreplace", write_through=True)


def reader_is_gone() -> bool:
    """Return whether stdout is a pipe or a socket whose other end is closed."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def flush_stdout() -> bool:
    """Write out what was printed, and return whether somebody was there to read it.

    What nobody reads is dropped, so that the interpreter does not try it again at its end.

    Raises:
        OSError: , as on a full disk.
    """
    try:
        sys.stdout.flush()
        return True
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
