"""The process of a command: its standard streams, any of which may be closed, and its end by Ctrl-C or SIGTERM.

The standard streams of a command: any of them may be closed, also while the command runs. Results go to stdout: if its
reader exits, as `| head` does, the command cleans up and ends with the exit code of SIGPIPE. Messages go to stderr, and
failing to write them never ends the command.
"""

import io
import os
import select
import signal
import sys
from contextlib import suppress
from types import FrameType

from taugate.errors import InputError

READER_GONE = 141  # exit code that shells report for SIGPIPE

INTERRUPTED = 130  # exit code
MESSAGE = "taugate: interrupted"

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IMPORT_FRAMES = "<frozen importlib._bootstrap>"
_OF_COMMANDS = (
    "__main__",
    "taugate.__main__",
    "taugate.cli.",
)  # modules that import before the command starts its work
_RETRY_SECONDS = 0.05


_interrupted = False


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
    """
    try:
        sys.stdout.flush()
        return True
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False


def handle_interrupts() -> None:
    """Handle both signals from now on; in the main thread of a process that runs one command.

    The service replaces these handlers while it serves.
    """
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    signal.signal(signal.SIGALRM, _interrupt_import_again)
    sys.unraisablehook = _retry_swallowed


def interrupted() -> bool:
    """Return whether this process was interrupted; later errors may be a consequence."""
    return _interrupted


def leave_when_interrupted() -> None:
    """Let signals end the process at once from now on: all output is written, and no cleanup remains."""
    if _interrupted:  # half-imported libraries may fail in an orderly exit
        os._exit(INTERRUPTED)
    for number in _SIGNALS:
        signal.signal(number, _leave)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, so that the command cleans up; before its work begins, end the process at once."""
    global _interrupted  # noqa: PLW0603 (a process is interrupted once)
    importer = _outermost_importer(frame)
    if importer is not None and importer.startswith(_OF_COMMANDS):
        _leave(number, frame)
    _interrupted = True
    sys.excepthook = _print_nothing
    if importer is not None:
        signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)
    raise KeyboardInterrupt


def _interrupt_import_again(number: int, frame: FrameType | None) -> None:
    """Interrupt an import again: extension modules replace the error, and a caller may catch the replacement."""
    if _outermost_importer(frame) is not None:
        _interrupt(number, frame)


def _outermost_importer(frame: FrameType | None) -> str | None:
    """Return the name of the module whose code started the current imports, or None if nothing is being imported."""
    importer = None
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_FRAMES and frame.f_back is not None:
            importer = _module(frame.f_back)
        elif importer == "importlib":  # import_module is between the import and its caller
            importer = _module(frame)
        frame = frame.f_back
    return importer


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _retry_swallowed(unraisable: "sys.UnraisableHookArgs") -> None:
    """Interrupt again if the first interrupt was raised in a destructor or a C callback, which swallow errors."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    elif not _interrupted:
        sys.__unraisablehook__(unraisable)


def _print_nothing(*_: object) -> None:
    """Replace sys.excepthook, with which extension modules print an error before they replace it."""


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, f"{MESSAGE}\n".encode())
    os._exit(INTERRUPTED)


BY = "TAUGATE_BY"
BY_HELP = "your name, or that of a job, for the history, which has user and host as well"
_MAX_NAME = 200  # the name of a Kubernetes job has at most 63 characters


def act_as(name: str | None) -> None:
    """Record a name in the history with what this process does from now on."""
    if name is not None and not 0 < len(name.strip()) <= _MAX_NAME:
        raise InputError(f"{BY}: give a name of 1 to {_MAX_NAME} characters")
    from taugate.registry.history import NAMED  # loads pydantic

    NAMED.set(name)
