"""The standard streams of a command: any of them may be closed, also while the command runs.

Results go to stdout: if its reader exits, as `| head` does, the command cleans up and ends with the exit code of
SIGPIPE. Messages go to stderr, and failing to write them never ends the command.
"""

import io
import os
import select
import sys
from contextlib import suppress

READER_GONE = 141  # exit code that shells report for SIGPIPE


class _LossyStderr(io.FileIO):
    """File descriptor 2 without errors: lines are lost if the disk is full or the reader is gone."""

    def write(self, data: "io.ReadableBuffer", /) -> int:  # type: ignore[name-defined]  # of typeshed alone
        """Write bytes; returns their number, even if some were lost."""
        unwritten = memoryview(data).cast("B")
        size = len(unwritten)
        with suppress(OSError):
            while unwritten:  # a signal may end a write to a full pipe in the middle of a line
                written = super().write(unwritten)
                if written is None:  # a non-blocking stream whose reader is slow
                    break
                unwritten = unwritten[written:]
        return size


def prepare_streams() -> None:
    """Open closed streams on the null device, and ignore errors of stderr.

    Otherwise a file that is opened later would get the number of a closed stream, and be overwritten.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # uses the lowest free number
            os.set_inheritable(number, True)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # documents are UTF-8, whatever the locale
    encoding = sys.stderr.encoding if sys.stderr else "utf-8"
    raw = _LossyStderr(2, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(raw, encoding, "backslashreplace", write_through=True)


def reader_is_gone() -> bool:
    """Return whether stdout is a pipe or a socket whose other end is closed."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def flush_stdout() -> bool:
    """Flush stdout; returns False if its reader is gone.

    The output is then dropped, so that the interpreter does not try to write it again at exit.

    Raises:
        OSError: If the output cannot be written, for example because the disk is full.
    """
    try:
        sys.stdout.flush()
        return True
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
