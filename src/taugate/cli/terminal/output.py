"""Output for people: lines on stderr, and untrusted text without control characters."""

import os
import sys
import unicodedata
from collections.abc import Mapping

# Colour of a line on a terminal, by its first word.
_STYLES = {"warning:": "yellow", "PROVISIONAL:": "bold yellow", "taugate:": "bold red"}
_JOINERS = "\u200c\u200d"  # zero-width non-joiner and joiner


def say(line: str) -> None:
    """Write a line to stderr, so that stdout holds only the result; on a terminal, warnings and errors are in colour.

    Args:
        line: The text, without a line break at its end.
    """
    first = line.partition(" ")[0]
    _write(first, line[len(first) :], _STYLES.get(first))


def say_labelled(rows: Mapping[str, str]) -> None:
    """Write lines with a label in front of each to stderr; on a terminal the labels are bold.

    Lines are not wrapped, so that paths and commands can be copied.

    Args:
        rows: A line of text by its label.
    """
    width = max(map(len, rows), default=0)
    for label, text in rows.items():
        _write(f"{label:{width}}", f"  {text}", "bold")


def _write(start: str, end: str, style: str | None) -> None:
    """Write a line to stderr, its start in a style of Rich or in none."""
    if style is not None and in_colour():
        from rich.console import Console
        from rich.text import Text

        Console(stderr=True, soft_wrap=True).print(Text.assemble((start, style), end))
    else:
        sys.stderr.write(f"{start}{end}\n")


def in_colour() -> bool:
    """Return whether stderr takes colours: a terminal without NO_COLOR, or any output with FORCE_COLOR.

    Colours need Rich, which comes with the extra `calibration`.
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
        text: One line of untrusted text.
    """
    return "".join(
        letter if letter.isprintable() or letter in _JOINERS else " " if unicodedata.category(letter) == "Zs" else "?"
        for letter in text
    )
