"""What a parser returns: the text of a document in reading order, with the blocks that it is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from taugate.retrieval.documents.store import Scalar

BlockKind = Literal["heading", "prose", "table", "code"]


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list, table, code listing or heading of a document.

    start, end: its characters in the document's text. kind: what it is; tables and code are kept whole where they fit
    in a chunk. headings: the headings above it, outermost first; a heading ends with itself. page: its page, from 1, in
    files that have pages.
    """

    start: int
    end: int
    kind: BlockKind
    headings: tuple[str, ...] = ()
    page: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A file, or one record of a file, as text.

    key: tells the records of a file apart; empty where the file is one document. title: its own title, empty where it
    has none. text: its words in reading order. blocks: in order, without overlap. metadata: what the file says about
    itself, such as dates.
    """

    key: str
    title: str
    text: str
    blocks: tuple[Block, ...]
    metadata: Mapping[str, Scalar] = field(default_factory=dict)


class UnreadableFile(Exception):
    """A file that cannot be read as its kind; the message is the reason that the user sees."""


class TextBuilder:
    """Collects blocks and the text that they stand in, with an empty line between two of them."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._blocks: list[Block] = []

    def add(self, text: str, kind: BlockKind, headings: tuple[str, ...] = (), page: int | None = None) -> None:
        """Append a block; one without a printing character is left out. Parameters: those of `Block`."""
        text = text.strip("\n").rstrip()
        if not text.strip():
            return
        start = self._length + (2 if self._parts else 0)
        self._blocks.append(Block(start, start + len(text), kind, headings, page))
        self._parts.append(text)
        self._length = start + len(text)

    def document(self, title: str, key: str = "", metadata: Mapping[str, Scalar] | None = None) -> ParsedDocument:
        """Return the document. Parameters: those of `ParsedDocument`."""
        return ParsedDocument(key, title, "\n\n".join(self._parts), tuple(self._blocks), dict(metadata or {}))
