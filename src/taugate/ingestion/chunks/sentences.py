"""Where a sentence ends, for chunks and for whatever else reads a text sentence by sentence."""

import re
from collections.abc import Iterator

# The end of a sentence, an empty line, or a line break before an item of a list; other line breaks only wrap lines.
SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n\s*\n|\n(?=\s*(?:[-*+•]|\d+[.)])\s)")
LONGEST = 4_000  # characters: a longer "sentence" is none, and tokenizers take time that grows with its square


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text in order, without the space around them.

    Args:
        text: Of one document.
    """
    for start, end in spans(text, 0, len(text), SENTENCE_END):
        if sentence := text[start:end].strip():
            yield sentence


def spans(text: str, start: int, end: int, boundary: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the spans between boundaries, each with the boundary after it, cut where they are longer than LONGEST.

    Args:
        text: Of one document.
        start: The characters of it to divide.
        end: The characters of it to divide.
        boundary: What ends a span.
    """
    begin = start
    for found in boundary.finditer(text, start, end):
        if found.end() > begin:
            yield from _slices(begin, found.end())
            begin = found.end()
    if begin < end:
        yield from _slices(begin, end)


def _slices(start: int, end: int) -> Iterator[tuple[int, int]]:
    for begin in range(start, end, LONGEST):
        yield begin, min(begin + LONGEST, end)
