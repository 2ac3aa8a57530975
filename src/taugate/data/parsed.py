"""What a parser returns, the text of a document with its blocks, and the pieces that chunks are made of.

A plug-in that reads files of another format is a parser: an entry point of the group `taugate.importers`, named by the
suffix of the files without its dot.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Literal

from taugate.retrieval.documents.store import MetadataValue

if TYPE_CHECKING:
    from tokenizers import Tokenizer


BlockKind = Literal["heading", "prose", "table", "code"]

# The end of a sentence, an empty line, or a line break before an item of a list; other line breaks only wrap lines.
SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n\s*\n|\n(?=\s*(?:[-*+•]|\d+[.)])\s)")
HEADING_SEPARATOR = " > "  # between the headings in the title of a chunk
LONGEST = 4_000  # characters: longer runs are not sentences, and tokenizers take time that grows with the square

_LINE = re.compile(r"\n")
_LINK_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[[^\]]*\]\([^)]*\)")  # of Markdown; a description may follow
_RULER = re.compile(r"\n[ \t]*\|?[ \t]*:?-+[-|: \t]*\n")  # the line below a table's head, which says nothing alone


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list, table, code listing or heading of a document."""

    start: int  # offset of its first character in the document's text
    end: int  # offset after its last character
    kind: BlockKind  # tables and code are kept whole if they fit in a chunk
    headings: tuple[str, ...] = ()  # the headings above it, outermost first; a heading ends with itself
    page: int | None = None  # its page, from 1, in files that have pages


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A file, or one record of a file, as text."""

    key: str  # identifies a record within its file; empty if the file is one document
    title: str
    text: str  # the words in reading order
    blocks: tuple[Block, ...]  # blocks in reading order, without overlap
    # metadata stated in the file, such as dates and tags
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """Result of parsing a file."""

    documents: list[ParsedDocument]  # documents in the order of the file
    # every word of the file as shown, from a plain reading of the same bytes that ignores markup and layout. It shows
    # words that the documents lost and numbers that they changed; "" compares nothing
    source_text: str = ""
    # remarks for the user on how the file was read, each a predicate whose subject is the file, such as "is read as
    # windows-1252"
    notes: tuple[str, ...] = ()
    # text in `source_text` that readers of the documents do not miss, such as the navigation of a page
    left_out: str = ""


Parser = Callable[[bytes], ParsedFile]
"""Reads the content of a file; raises UnreadableFile if it is not of the format."""


def with_unique_keys(documents: Iterable[ParsedDocument]) -> list[ParsedDocument]:
    """Return documents with distinct keys: repeated keys get a number."""
    keys: set[str] = set()
    renamed = []
    for document in documents:
        key, number = document.key, 1
        while key in keys:
            number += 1
            key = f"{document.key} ({number})"
        keys.add(key)
        renamed.append(replace(document, key=key))
    return renamed


def prose_document(text: str, title: str = "") -> ParsedDocument:
    """Return a text as a document, exactly as it is written; its blocks are its paragraphs.

    Args:
        text: The text, with empty lines between paragraphs.
    """
    return ParsedDocument("", title, text, tuple(Block(start, end, "prose") for start, end in _paragraphs(text)))


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each paragraph, without the space around it."""
    begin = 0
    for gap in chain(re.finditer(r"\n[^\S\n]*\n", text), [None]):
        paragraph = text[begin : gap.start() if gap else None]
        if stripped := paragraph.strip():
            start = begin + paragraph.index(stripped[0])
            yield start, start + len(stripped)
        begin = gap.end() if gap else begin


class UnreadableFile(Exception):
    """A file that cannot be read as its kind; the message is the reason shown to the user."""


class TextBuilder:
    """Collects blocks and their text, separated by empty lines."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._blocks: list[Block] = []

    def add(self, text: str, kind: BlockKind, headings: tuple[str, ...] = (), page: int | None = None) -> None:
        """Append a block with the attributes of `Block`; a block without a printing character is left out."""
        text = text.strip("\n").rstrip()
        if not text.strip():
            return
        start = self._length + (2 if self._parts else 0)
        self._blocks.append(Block(start, start + len(text), kind, headings, page))
        self._parts.append(text)
        self._length = start + len(text)

    def document(
        self, title: str, key: str = "", metadata: Mapping[str, MetadataValue] | None = None
    ) -> ParsedDocument:
        """Return the document; the parameters are attributes of `ParsedDocument`."""
        return ParsedDocument(key, title, "\n\n".join(self._parts), tuple(self._blocks), dict(metadata or {}))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text in order, without the space around them."""
    for start, end in spans(text, 0, len(text), SENTENCE_END):
        if sentence := text[start:end].strip():
            yield sentence


def spans(text: str, start: int, end: int, boundary: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the spans between boundaries, each with the boundary after it, cut if they are longer than LONGEST."""
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

    def __init__(self, tokenizer: "Tokenizer", max_tokens: int, max_whole: int) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._max_whole = max_whole

    def count(self, text: str) -> int:
        """Return the length of a text in tokens, without special ones."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids) if text else 0

    def read(self, text: str, section: Section, title_tokens: int) -> Iterator[Piece]:
        """Yield the pieces of a section in reading order."""
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
