"""The pieces that chunks are made of: a sentence, a line, a list item, a row, a table, or a listing."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tokenizers import Tokenizer

from taugate.data.parsed import Block, ParsedDocument

# The end of a sentence, an empty line, or a line break before an item of a list; other line breaks only wrap lines.
SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n\s*\n|\n(?=\s*(?:[-*+•]|\d+[.)])\s)")
HEADING_SEPARATOR = " > "  # between the headings in the title of a chunk
LONGEST = 4_000  # characters: longer runs are not sentences, and tokenizers take time that grows with the square

_LINE = re.compile(r"\n")
_LINK_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[[^\]]*\]\([^)]*\)")  # of Markdown; a description may follow
_RULER = re.compile(r"\n[ \t]*\|?[ \t]*:?-+[-|: \t]*\n")  # the line below a table's head, which says nothing alone


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text in order, without the space around them."""
    for start, end in spans(text, 0, len(text), SENTENCE_END):
        if sentence := text[start:end].strip():
            yield sentence


def spans(text: str, start: int, end: int, boundary: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the spans between boundaries, each with the boundary after it, cut if they are longer than LONGEST.

    Args:
        start: Offset of the first character to divide.
        end: Offset after the last character to divide.
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


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under one heading."""

    path: tuple[str, ...]
    titles: list[Block]  # the headings right before the blocks, as blocks
    blocks: list[Block]

    def start(self, path: tuple[str, ...]) -> int:
        """Return the start of a chunk titled `path`: that of the first heading that the title leaves out."""
        return next((title.start for title in self.titles if len(title.headings) > len(path)), self.blocks[0].start)


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text that is not divided further."""

    start: int  # offset of its first character in the document's text
    end: int  # offset after its last character
    tokens: int
    words: int  # number of its words, as spaces separate them
    page: int | None  # its page; None if the file has no pages
    opens: bool  # whether a reader may begin here: with a block that no sentence before introduces
    is_link: bool  # whether it is an item of a list that begins with a link
    section: Section | None = None  # section that it opens; None for the later pieces of a section
    heading_tokens: int = 0  # length of the headings before it


class PieceReader:
    """Divides sections into pieces.

    Attributes:
        tokenizer: The encoder's tokenizer, without truncation and padding.
        max_tokens: Length of a chunk without its title.
        max_whole: Length up to which a listing or a row is one piece, although it is longer than a chunk.
    """

    def __init__(self, tokenizer: Tokenizer, max_tokens: int, max_whole: int) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._max_whole = max_whole

    def count(self, text: str) -> int:
        """Return the length of a text in tokens, without special ones."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids) if text else 0

    def read(self, text: str, section: Section, title_tokens: int) -> Iterator[Piece]:
        """Yield the pieces of a section in reading order.

        Args:
            title_tokens: Length of the title of its chunks, which leaves less for the text.
        """
        headings = sum(self.count(text[title.start : title.end]) for title in section.titles)
        introduces = False  # whether the previous piece ends with a colon
        for block in section.blocks:
            for number, (start, end, tokens) in enumerate(self._spans(text, block, title_tokens)):
                first = block is section.blocks[0] and not number
                words = text[start:end].split()
                yield Piece(
                    start,
                    end,
                    tokens,
                    len(words),
                    block.page,
                    opens=not number and not introduces,
                    is_link=_LINK_ITEM.match(text, start, end) is not None,
                    section=section if first else None,
                    heading_tokens=headings if first else 0,
                )
                introduces = bool(words) and words[-1].endswith(":")

    def _spans(self, text: str, block: Block, title_tokens: int) -> Iterator[tuple[int, int, int]]:
        """Yield start, end and length of the pieces of a block: whole if it may be, else its sentences or lines."""
        max_tokens, max_whole = self._max_tokens - title_tokens, self._max_whole - title_tokens
        if block.kind != "prose" and block.end - block.start <= LONGEST:
            tokens = self.count(text[block.start : block.end])
            if tokens <= (max_whole if block.kind == "code" else max_tokens):
                yield block.start, block.end, tokens
                return
        boundary = SENTENCE_END if block.kind in {"prose", "heading"} else _LINE
        parts = list(spans(text, block.start, block.end, boundary))
        if block.kind == "table":
            parts = _with_head(text, parts)
        # Each piece is counted with the space after it, so that a chunk is never longer than its pieces.
        counts = self._tokenizer.encode_batch([text[start:end] for start, end in parts], add_special_tokens=False)
        for (start, end), encoding in zip(parts, counts, strict=True):
            if len(encoding.ids) <= (max_whole if block.kind == "table" else max_tokens):
                yield start, end, len(encoding.ids)
            else:
                yield from self._cut(text, start, end, max_tokens)

    def _cut(self, text: str, start: int, end: int, max_tokens: int) -> Iterator[tuple[int, int, int]]:
        """Divide text that is longer than a chunk and has no sentences, between two words if there are any."""
        while start < end:
            offsets = self._tokenizer.encode(text[start:end], add_special_tokens=False).offsets
            if len(offsets) <= max_tokens:
                yield start, end, len(offsets)
                return
            cut = start + offsets[max_tokens - 1][1]
            space = text.rfind(" ", start + 1, cut)
            cut = space + 1 if space > start + (cut - start) // 2 else cut
            yield start, cut, self.count(text[start:cut])
            start = cut


def sections(document: ParsedDocument) -> Iterator[Section]:
    """Group blocks by their headings. Headings become text only if the document has no other text."""
    if all(block.kind == "heading" for block in document.blocks):
        if document.blocks:
            yield Section((), [], list(document.blocks))
        return
    titles: list[Block] = []
    for is_heading, group in groupby(document.blocks, key=lambda block: block.kind == "heading"):
        if is_heading:
            titles = list(group)
            continue
        for path, same in groupby(group, key=lambda block: block.headings):
            yield Section(path, titles, list(same))
            titles = []


def _with_head(text: str, rows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join the head of a table, the line below it and its first row."""
    if len(rows) < 3 or _RULER.fullmatch(f"\n{text[slice(*rows[1])].strip()}\n") is None:
        return list(rows)
    return [(rows[0][0], rows[2][1]), *rows[3:]]
