"""Ctrl-C and SIGTERM: the command cleans up and ends with exit code 130 and one line, never with a traceback."""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130  # exit code
MESSAGE = "taugate: interrupted"

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IMPORT_FRAMES = "<frozen importlib._bootstrap>"
_OF_COMMANDS = ("__main__", "taugate.__main__", "taugate.cli.")  # modules that import before there is any work
_RETRY_SECONDS = 0.05


_interrupted = False


def handle_interrupts() -> None:
    """Handle both signals from now on; for the main thread of a process that runs one command.

    The service puts its own handlers in place of these while it serves.
    """
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    signal.signal(signal.SIGALRM, _interrupt_import_again)
    sys.unraisablehook = _retry_swallowed


def interrupted() -> bool:
    """Return whether this process was interrupted, so that any error since then may be a consequence."""
    return _interrupted


def leave_when_interrupted() -> None:
    """From now on the signals end the process at once: everything is written out, and nothing is left to clean up."""
    if _interrupted:  # libraries that were half imported had better not be ended in order
        os._exit(INTERRUPTED)
    for number in _SIGNALS:
        signal.signal(number, _leave)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, so that the command cleans up; before it begins to work, end the process at once."""
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
    """Interrupt an import once more: an extension module replaces the error, and somebody may catch the new one."""
    if _outermost_importer(frame) is not None:
        _interrupt(number, frame)


def _outermost_importer(frame: FrameType | None) -> str | None:
    """Name the module whose code started the imports that are under way; None where nothing is being imported."""
    importer = None
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_FRAMES and frame.f_back is not None:
            importer = _module(frame.f_back)
        elif importer == "importlib":  # whose import_module stands between the import and who asked for it
            importer = _module(frame)
        frame = frame.f_back
    return importer


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _retry_swallowed(unraisable: "sys.UnraisableHookArgs") -> None:
    """Interrupt again where the first interrupt met a destructor or a callback of C, whose errors go nowhere."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    elif not _interrupted:
        sys.__unraisablehook__(unraisable)


def _print_nothing(*_: object) -> None:
    """Replace sys.excepthook, by which extension modules print an error that they go on to replace."""


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, f"{MESSAGE}\n".encode())
    os._exit(INTERRUPTED)
