"""What a parser returns: the text of a document in reading order, with the blocks that it is made of.

A plug-in that reads files of another format is a parser: an entry point of the group `taugate.importers`, named by the
suffix of the files without its dot.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from taugate.retrieval.documents.store import MetadataValue

BlockKind = Literal["heading", "prose", "table", "code"]


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
