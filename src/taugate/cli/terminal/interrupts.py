"""Ctrl-C and SIGTERM: the command cleans up and ends with exit code 130 and one line, without a traceback."""

import os
import signal
import sys
from types import FrameType

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
