"""Wrap text for a terminal, on which a character takes two columns, one or none."""

import re
import unicodedata
from collections.abc import Iterator

_WORD = re.compile(r"(\s*)(\S+)")
_MAX_CLOSING = 3  # characters of a letter with its closing punctuation; longer runs of dots may be broken


def columns(text: str) -> int:
    """Return how many columns a text takes: two for each wide letter of Chinese, Japanese and Korean, none for a mark.

    Args:
        text: Of any characters, without a line break.
    """
    return sum(map(_columns, text))


def wrapped(text: str, width: int) -> list[str]:
    """Break one paragraph into lines, between words or before wide letters.

    A word longer than a line is broken between two letters, but never between a letter and its marks.

    Args:
        text: Without a line break.
        width: Columns of a line, 1 or more.

    Returns:
        The lines; none for an empty text.
    """
    lines, line, used = list[str](), "", 0
    for space, piece in _pieces(text, width):
        width_of_piece = columns(piece)
        if line and used + len(space) + width_of_piece > width:
            lines.append(line)
            line, used = piece, width_of_piece
        else:
            line, used = (line + space + piece, used + len(space) + width_of_piece) if line else (piece, width_of_piece)
    return [*lines, line] if line else lines


def _pieces(text: str, width: int) -> Iterator[tuple[str, str]]:
    """Yield the unbreakable pieces of a text, each with the space before it."""
    for match in _WORD.finditer(text):
        space, word = " " if match[1] else "", match[2]
        breakable = columns(word) > width or any(_columns(letter) == 2 for letter in word)
        for piece in _letters(word) if breakable else [word]:
            yield space, piece
            space = ""


def _letters(word: str) -> Iterator[str]:
    """Yield each letter with the marks on it; a closing mark such as a full stop stays with the letter before it."""
    letter = ""
    for character in word:
        closes = len(letter) < _MAX_CLOSING and unicodedata.category(character) in {"Pe", "Pf", "Po"}
        if letter and _columns(character) and not closes:
            yield letter
            letter = ""
        letter += character
    if letter:
        yield letter


def _columns(letter: str) -> int:
    if unicodedata.category(letter) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1
