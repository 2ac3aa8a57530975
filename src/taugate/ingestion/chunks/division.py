"""Chooses where chunks begin: the division of a document's pieces that costs least.

A chunk costs the square of its share of the full length, so of two divisions into the same number of chunks the more
even one is cheaper. A chunk that begins within a section costs 1 more. That is more than a further chunk can save by
evenness, T²/(n(n + 1)) < 1 for a section of T ≤ n full lengths, so a section has as few chunks as it can.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from taugate.ingestion.chunks.pieces import Piece

# A title may have a quarter of a chunk, some 25 words: with fewer words than this, it would decide the rank alone.
MIN_WORDS = 30
# A text of so many characters is not short even if it has few words, as in scripts without spaces between words:
# MIN_WORDS words of 8 characters.
_MIN_CHARACTERS = 240
_WITHIN_SECTION = 1.0
# Two chunks whose boundary is a quarter of the full length off the middle cost 2 · (1/4)² more than even ones, so a
# boundary moves by at most that to lie between two blocks.
_WITHIN_BLOCK = 0.125
# Joining shares a and b costs 2ab ≤ 1/2 more, so a short chunk is joined with any neighbour that has room for it, but
# no section that fits in a chunk is divided for it.
_SHORT = 0.5
# More than dividing a section in two: links that lead to other texts say nothing themselves, and match every question.
_LINKS_ALONE = 2.0


@dataclass(frozen=True, slots=True)
class Division:
    """Pieces of one chunk.

    Attributes:
        first: Position of the first piece.
        stop: Position after the last piece.
        path: Headings that the chunk has as its title: those that all of its sections share, or those of the section in
            which it begins, if it begins within one. Headings that are not among them are a part of its text.
        tokens: Its length with the title.
    """

    first: int
    stop: int
    path: tuple[str, ...]
    tokens: int


def divide(
    pieces: Sequence[Piece], max_tokens: int, overlap: int, title_tokens: Callable[[tuple[str, ...]], int]
) -> list[Division]:
    """Return the chunks of a document with the lowest total cost, in reading order.

    Args:
        pieces: All pieces of the document; the first one opens a section.
        max_tokens: Length of a chunk with its title. A piece that is longer is a chunk of its own.
        overlap: Tokens kept free in chunks that begin within a section.
        title_tokens: Returns the length of a title.
    """
    paths = _paths(pieces)
    best: list[tuple[float, Division | None]] = [(0.0, None)]
    for stop in range(1, len(pieces) + 1):
        best.append(
            min(
                (
                    (best[division.first][0] + cost, division)
                    for division, cost in _last_chunks(pieces, paths, stop, max_tokens, overlap, title_tokens)
                ),
                key=lambda option: option[0],
            )
        )
    chunks: list[Division] = []
    division = best[-1][1]
    while division is not None:
        chunks.append(division)
        division = best[division.first][1]
    return chunks[::-1]


def _last_chunks(
    pieces: Sequence[Piece],
    paths: Sequence[tuple[str, ...]],
    stop: int,
    max_tokens: int,
    overlap: int,
    title_tokens: Callable[[tuple[str, ...]], int],
) -> list[tuple[Division, float]]:
    """Return the chunks that may end before piece `stop`, with their costs; the one of a single piece always may."""
    options: list[tuple[Division, float]] = []
    tokens = words = 0
    links_alone = True
    common = paths[stop - 1]
    for first in range(stop - 1, -1, -1):
        piece = pieces[first]
        tokens += piece.tokens
        words += piece.words
        links_alone &= piece.is_link
        common = _common(common, paths[first])
        path = common if piece.section else paths[first]
        length = tokens + title_tokens(path)
        if piece.section and path != paths[first]:
            length += piece.heading_tokens
        if length + (0 if piece.section else overlap) > max_tokens and options:
            if tokens > max_tokens:
                break
        else:
            cost = (tokens / max_tokens) ** 2
            if piece.section is None:
                cost += _WITHIN_SECTION + (0 if piece.opens else _WITHIN_BLOCK)
            if links_alone:
                cost += _LINKS_ALONE
            elif words < MIN_WORDS and pieces[stop - 1].end - piece.start < _MIN_CHARACTERS:
                cost += _SHORT
            options.append((Division(first, stop, path, length), cost))
        tokens += piece.heading_tokens  # the chunk that begins earlier has this heading in its text
    return options


def _paths(pieces: Sequence[Piece]) -> list[tuple[str, ...]]:
    """Return the headings above each piece."""
    paths: list[tuple[str, ...]] = []
    for piece in pieces:
        paths.append(piece.section.path if piece.section else paths[-1])
    return paths


def _common(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Return the headings that two paths share, from the outermost on."""
    length = next((i for i, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    return first[: min(len(first), len(second))] if length is None else first[:length]
