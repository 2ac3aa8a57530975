"""Judging in the terminal: one passage at a time, one key per judgement, without Enter."""

import os
import shutil
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from taugate.cli.judging.session import GUIDELINE, KEYS, JudgingSession, heading, segments
from taugate.cli.terminal.output import printable, say
from taugate.ingestion.labels.judging import Judging
from taugate.ingestion.labels.session import Progress, Question

_MAX_WIDTH = 100  # columns: longer lines are hard to read
_BAR_CELLS = 20  # columns; with the longest progress line it fits into 80
_CLEAR = "\x1b[2J\x1b[H"
_MARK, _PLAIN = "\x1b[1;4m", "\x1b[0m"  # bold and underlined: no word stands out by its colour alone
_END_OF_INPUT = "\x04"  # Ctrl-D


def judge_in_terminal(work: Judging) -> None:
    """Show one result after the other, until the sample ends or the judge stops.

    Without a terminal, each line of standard input is one key.

    Raises:
        InputError: If the data set changes meanwhile.
    """
    styled = sys.stdin.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    remarks: list[str] = []
    session = JudgingSession(work, remarks.append)
    with _keyboard() as ask:
        while session.question is not None:
            shown = screen(session.question, work.session.progress(), remarks, styled=styled)
            remarks.clear()
            key = ask(shown)
            if not styled:
                say("")
            if not key or not session.handle_key(key):
                return


def screen(question: Question, progress: Progress, remarks: list[str], *, styled: bool) -> str:
    """Return the screen that shows one result; `styled` if the terminal can be cleared and shows bold letters."""
    size = shutil.get_terminal_size()
    width = min(size.columns, _MAX_WIDTH)
    query, document = question.query.text, question.document
    query_lines = [f"Query: {line}" if not number else line for number, line in enumerate(wrapped(query, width - 7))]
    passage = [*(wrapped(document.title, width) if document.title else ()), *wrapped(document.text, width)]
    if styled:
        passage = [_marked(line, query) for line in passage]
    top = [*remarks, f"{_bar(progress)} {progress}", *wrapped(GUIDELINE, width)]
    lines = [*top, "", *query_lines, "", f"{heading(question)}:", "", *passage, ""]
    if len(lines) + 2 > size.lines:  # the query has scrolled off the screen
        lines += [*query_lines, ""]
    keys = "  ".join(f"[{key}] {action}" for key, action in KEYS.items())
    return f"{_CLEAR if styled else ''}" + "\n".join([*lines, keys]) + "\n"


def _bar(progress: Progress) -> str:
    filled = _BAR_CELLS * progress.done // progress.total
    return "█" * filled + "░" * (_BAR_CELLS - filled)


def wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines of so many columns; control characters are replaced.

    Rich knows which letters take two columns, or none. Without it, the terminal breaks the lines.
    """
    paragraphs = [printable(paragraph.expandtabs(4)) for paragraph in text.splitlines()]
    if find_spec("rich") is None:
        return paragraphs
    from rich.console import Console
    from rich.text import Text

    console = Console()
    return [line.plain.rstrip() for text in paragraphs for line in Text(text).wrap(console, max(width, 1)) or [Text()]]


def _marked(line: str, query: str) -> str:
    return "".join(f"{_MARK}{text}{_PLAIN}" if matched else text for text, matched in segments(line, query))


@contextmanager
def _keyboard() -> Iterator[Callable[[str], str]]:
    """Yield a function that shows a text and waits for a key; it returns nothing at the end of the input.

    On a terminal, keys work without Enter and are not shown. Keys typed before a question appears are dropped, as
    when a key is held down.
    """
    if not sys.stdin.isatty():
        yield _ask_for_a_line
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def ask(shown: str) -> str:
        termios.tcflush(descriptor, termios.TCIFLUSH)
        _show(shown)
        while True:
            pressed = os.read(descriptor, 32).decode("utf-8", "replace")
            if pressed in {"", _END_OF_INPUT}:
                return ""
            if pressed[0] != "\x1b":  # an arrow, or another key that sends more than a letter
                return pressed[0].lower()

    try:
        tty.setcbreak(descriptor)
        yield ask
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _ask_for_a_line(shown: str) -> str:
    """Show a text and read a line; returns its first letter, a space for an empty one, nothing at the end."""
    _show(shown)
    line = sys.stdin.readline()
    return line.strip()[:1].lower() or " " if line else ""
