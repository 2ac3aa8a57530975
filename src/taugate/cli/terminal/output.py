"""Output for people: lines on stderr, and untrusted text without control characters."""

import sys
import unicodedata
from collections.abc import Mapping
from typing import Any

import click

from taugate.cli.terminal.command import in_colour

# Style of a line on a terminal, by its first word.
_STYLES: Mapping[str, Mapping[str, Any]] = {
    "warning:": {"fg": "yellow"},
    "PROVISIONAL:": {"fg": "yellow", "bold": True},
    "taugate:": {"fg": "red", "bold": True},
}
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
        _write(f"{label:{width}}", f"  {text}", {"bold": True})


def _write(start: str, end: str, style: Mapping[str, Any] | None) -> None:
    """Write a line to stderr, its start in a style or in none."""
    if style is not None and in_colour(sys.stderr):
        start = click.style(start, **style)
    sys.stderr.write(f"{start}{end}\n")


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
