"""Output: results on stdout, lines for people on stderr, and untrusted text without control characters."""

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TextIO, TypedDict, Unpack

import click
import orjson

from taugate.storage.files import Json


class Style(TypedDict, total=False):
    """Colour and weight of words, as Click names them."""

    fg: str
    bold: bool


# Style of a line on a terminal, by its first word.
_STYLES: Mapping[str, Style] = {
    "warning:": {"fg": "yellow"},
    "PROVISIONAL:": {"fg": "yellow", "bold": True},
    "taugate:": {"fg": "red", "bold": True},
}
_COPIED = ("Open", "Report")  # labels of commands, addresses and paths
# So that rows that are written one after another are aligned, as both lines of a release's summary are.
_LABEL_COLUMNS = len("Certified") + 3
_JOINERS = "\u200c\u200d"  # zero-width non-joiner and joiner


def in_colour(stream: TextIO) -> bool:
    """Return whether stdout or stderr takes colours: a terminal without NO_COLOR, or any stream with FORCE_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def print_result(result: str | Path | Mapping[str, Json]) -> None:
    """Write a result to stdout at once, as a line or as one JSON object."""
    sys.stdout.write(f"{orjson.dumps(result).decode() if isinstance(result, Mapping) else result}\n")
    sys.stdout.flush()


def say(line: str) -> None:
    """Write a line to stderr, as stdout holds only results; on a terminal, warnings and errors are in colour."""
    sys.stderr.write(f"{styled(line)}\n")


def say_sentence(sentence: str) -> None:
    """Write a sentence to stderr; lines of a terminal end between words."""
    columns = shutil.get_terminal_size().columns if sys.stderr.isatty() else 0
    for line in _wrapped(sentence, columns):
        say(line)


def styled(line: str) -> str:
    """Return a line with its first word in colour if it is a warning or an error, and stderr takes colours."""
    first = line.partition(" ")[0]
    return _styled(first, **_STYLES.get(first, {})) + line[len(first) :]


def is_error(line: str) -> bool:
    """Return whether a line is an error by its first word."""
    return line.startswith("taugate: ")


def is_warning(line: str) -> bool:
    """Return whether a line is a warning or an error by its first word."""
    return line.partition(" ")[0] in _STYLES


def say_labelled(rows: Mapping[str, str]) -> None:
    """Write paragraphs with a label in front of each to stderr; on a terminal the labels are bold.

    A terminal gets lines of its width, which end between words. Commands and paths are not wrapped, so that they can be
    copied: they are lines of their own that begin with "taugate ", or follow one of the labels of `_COPIED`.
    """
    margin = max(_LABEL_COLUMNS, *(len(label) + 2 for label in rows))
    columns = shutil.get_terminal_size().columns if sys.stderr.isatty() else 0
    separator = f"\n{'':{margin}}"
    for label, text in rows.items():
        lines = [
            line
            for paragraph in text.split("\n")
            for line in _wrapped(paragraph, columns - margin if label not in _COPIED else 0)
        ]
        sys.stderr.write(f"{_styled(f'{label:{margin}}', bold=True)}{separator.join(lines)}\n")


def _wrapped(line: str, width: int) -> list[str]:
    if width <= 0 or line.startswith("taugate "):
        return [line]
    # A no-break space is no place to wrap: a number and its % stay together.
    lines = textwrap.wrap(line.replace(" %", "\u00a0%"), width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return the lines of a table of one or more rows; the columns `right` are aligned at their end."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    places = [f"{'>' if number in right else '<'}{width}" for number, width in enumerate(widths)]
    return ["  ".join(f"{cell:{place}}" for cell, place in zip(row, places, strict=True)).rstrip() for row in rows]


def _styled(text: str, **style: Unpack[Style]) -> str:
    return click.style(text, **style) if style and in_colour(sys.stderr) else text


def printable(text: str) -> str:
    """Replace what a terminal cannot print, or would obey, by question marks in a line of untrusted text.

    Spaces of any kind become plain ones, and the joiners within words of Persian and Hindi stay.
    """
    return "".join(
        letter if letter.isprintable() or letter in _JOINERS else " " if unicodedata.category(letter) == "Zs" else "?"
        for letter in text
    )
