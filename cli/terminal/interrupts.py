"""Ctrl-C and SIGTERM: the command cleans up and ends with exit code 130 and one line, never with a traceback."""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130  # exit code
MESSAGE = "taugate: interrupted"

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IMPORT_FRAMES = "<frozen importlib._bootstrap>"
_RETRY_SECONDS = 0.05


def handle_interrupts() -> None:
    """Handle both signals from now on; for the main thread of a process that runs one command.

    The service puts its own handlers in place of these while it serves.
    """
    for number in (*_SIGNALS, signal.SIGALRM):
        signal.signal(number, _interrupt)
    sys.unraisablehook = _retry_swallowed


def leave_when_interrupted() -> None:
    """Write out what was printed; from now on the signals end the process at once, with nothing left to clean up."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:  # whoever read this has gone, as `| head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    for number in _SIGNALS:
        signal.signal(number, _leave)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but never inside an import: extension modules turn it into other errors.

    While a subcommand imports what it needs, there is nothing to clean up yet, and the process ends at once. An import
    in the middle of the work, such as PyTorch's, is waited for.
    """
    importer = _outermost_importer(frame)
    if importer is None:
        raise KeyboardInterrupt
    if importer == "__main__" or importer.startswith("taugate.cli.") or importer == "taugate.__main__":
        _leave(number, frame)
    signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)  # its SIGALRM comes back here


def _outermost_importer(frame: FrameType | None) -> str | None:
    """Name the module whose code started the imports that are under way; None where nothing is being imported."""
    importer = None
    while frame is not None:
        caller = frame.f_back
        if caller is not None and frame.f_code.co_filename == _IMPORT_FRAMES:
            importer = str(caller.f_globals.get("__name__", ""))
        frame = caller
    return importer


def _retry_swallowed(unraisable: "sys.UnraisableHookArgs") -> None:
    """Interrupt again where the first interrupt met a destructor or a callback of C, whose errors go nowhere."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)
    else:
        sys.__unraisablehook__(unraisable)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, f"{MESSAGE}\n".encode())
    os._exit(INTERRUPTED)
