"""Sentence boundaries, for chunks and for other code that reads texts by sentence."""

import re
from collections.abc import Iterator

# The end of a sentence, an empty line, or a line break before an item of a list; other line breaks only wrap lines.
SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n\s*\n|\n(?=\s*(?:[-*+•]|\d+[.)])\s)")
LONGEST = 4_000  # characters: longer runs are not sentences, and tokenizers take time that grows with the square


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text in order, without the space around them."""
    for start, end in spans(text, 0, len(text), SENTENCE_END):
        if sentence := text[start:end].strip():
            yield sentence


def spans(text: str, start: int, end: int, boundary: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the spans between boundaries, each with the boundary after it, cut if they are longer than LONGEST.

    Args:
        text: Text of one document.
        start: Offset of the first character to divide.
        end: Offset after the last character to divide.
        boundary: Pattern that ends a span.
    """
    begin = start
    for match in boundary.finditer(text, start, end):
        if match.end() > begin:
            yield from _slices(begin, match.end())
            begin = match.end()
    if begin < end:
        yield from _slices(begin, end)


def _slices(start: int, end: int) -> Iterator[tuple[int, int]]:
    for begin in range(start, end, LONGEST):
        yield begin, min(begin + LONGEST, end)
