"""Writing for people: lines to stderr, and text from elsewhere in a form that no terminal obeys."""

import os
import sys
import unicodedata
from collections.abc import Mapping

# How a line is coloured on a terminal, by what it starts with.
_STYLES = {"warning:": "yellow", "PROVISIONAL:": "bold yellow", "taugate:": "bold red"}
_JOINERS = "\u200c\u200d"  # zero-width non-joiner and joiner


def say(line: str) -> None:
    """Write a line to stderr, so that stdout holds the result alone; on a terminal, warnings and errors in colour.

    Args:
        line: The text, without a line break at its end.
    """
    first = line.partition(" ")[0]
    _write(first, line[len(first) :], _STYLES.get(first))


def say_labelled(rows: Mapping[str, str]) -> None:
    """Write lines with a label in front of each to stderr; on a terminal the labels are bold.

    No line is broken, so that a path or a command can be copied as a whole.

    Args:
        rows: A line of text by its label.
    """
    width = max(map(len, rows), default=0)
    for label, text in rows.items():
        _write(f"{label:{width}}", f"  {text}", "bold")


def _write(start: str, rest: str, style: str | None) -> None:
    """Write a line to stderr whose start has a style of Rich, None for no style."""
    if style is not None and in_colour():
        from rich.console import Console
        from rich.text import Text

        Console(stderr=True, soft_wrap=True).print(Text.assemble((start, style), rest))
    else:
        sys.stderr.write(f"{start}{rest}\n")


def in_colour() -> bool:
    """Return whether stderr takes colours: a terminal that NO_COLOR does not silence, or any with FORCE_COLOR.

    Rich does the colouring and comes with the extra `calibration`; without it there are none.
    """
    if os.environ.get("NO_COLOR"):
        return False
    forced = bool(os.environ.get("FORCE_COLOR"))
    if not forced and (not sys.stderr.isatty() or os.environ.get("TERM") == "dumb"):
        return False
    from importlib.util import find_spec

    return find_spec("rich") is not None


def printable(text: str) -> str:
    """Replace what cannot be printed by question marks, as a terminal would obey control characters.

    Spaces of any kind become plain ones, and the joiners within words of Persian and Hindi stay.

    Args:
        text: One line of any characters, such as one from a file that others may write.
    """
    return "".join(
        letter if letter.isprintable() or letter in _JOINERS else " " if unicodedata.category(letter) == "Zs" else "?"
        for letter in text
    )
