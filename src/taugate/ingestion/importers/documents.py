"""A document on its way into a corpus, and the lines that it becomes there."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from taugate.errors import InputError
from taugate.ingestion.chunks.chunker import Chunk, Chunker
from taugate.ingestion.parsed import ParsedDocument
from taugate.retrieval.documents.store import MetadataValue


@dataclass(frozen=True, slots=True)
class ImportedDocument:
    """A document of any source.

    Attributes:
        id: Names it in the corpus and in judgements, and its chunks begin with it.
        content: Its title and text, with the blocks that chunks respect.
        metadata: Of each of its chunks.
        as_written: Whether title and text stay exactly as they are where they fit a chunk, as those of data sets do.
        parent: Those of a passage that was a chunk already, which is not divided again; None for whole documents.
        span: Those of a passage that was a chunk already, which is not divided again; None for whole documents.
    """

    id: str
    content: ParsedDocument
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    as_written: bool = False
    parent: str | None = None
    span: tuple[int, int] | None = None

    @property
    def document_id(self) -> str:
        """The id of the document that is counted: the parent's, else its own."""
        return self.parent or self.id

    def lines(self, chunker: Chunker | None, mark: str = "#") -> list[bytes]:
        """Return the lines of the corpus: one a chunk, each with its parent and span where there are several.

        Args:
            chunker: Divides the document, None leaves it whole.
            mark: Between its id and the number of a chunk.
        """
        chunks = self._chunks(chunker)
        lines = []
        for number, chunk in enumerate(chunks):
            own: dict[str, Any] = {"heading": chunk.heading, "page": chunk.page}
            line: dict[str, Any] = {
                "_id": f"{self.id}{mark}{number}" if len(chunks) > 1 else self.id,
                "title": chunk.title,
                "text": self.content.text[chunk.start : chunk.end],
                "metadata": {
                    **self.metadata,
                    **{name: value for name, value in own.items() if value not in {None, ""}},
                },
            }
            if len(chunks) > 1:
                line |= {"parent": self.id, "span": [chunk.start, chunk.end]}
            elif self.parent is not None:
                line |= {"parent": self.parent, "span": self.span}
            lines.append(orjson.dumps(line) + b"\n")
        return lines

    def _chunks(self, chunker: Chunker | None) -> list[Chunk]:
        title, text = self.content.title, self.content.text
        if chunker is None or self.parent is not None or (self.as_written and chunker.fits(f"{title} {text}")):
            return [Chunk(0, len(text), title, "", None)]
        return chunker.chunks(self.content)


class PassageIds:
    """The ids of the lines of a corpus, which are unique although a document may be named like a chunk of another.

    Attributes:
        reserved: Ids that no chunk may have, as judgements know a document by them.
    """

    def __init__(self, reserved: Container[str] = ()) -> None:
        self._reserved = reserved
        self._given: set[str] = set()  # ids that documents, and chunks of data sets, came with
        self._chunks: set[str] = set()  # ids that chunks were given here
        self._whole: set[str] = set()  # of documents that did not come in chunks
        self._divided: set[str] = set()  # of documents that did

    def lines(self, document: ImportedDocument, chunker: Chunker | None) -> tuple[ImportedDocument, list[bytes]]:
        """Return the next document with the id that it has in the corpus, and its lines.

        `manual#0` beside chunks of `manual` becomes `manual%230`. If it comes before `manual`, that one's chunks are
        `manual##0` and so on.

        Args:
            chunker: As in `ImportedDocument.lines`.

        Raises:
            InputError: If two documents have one id.
        """
        others = self._divided if document.parent is None else self._whole
        if document.id in self._given or document.document_id in others:
            raise InputError(
                f"two documents have the id {document.id!r}; give each source's documents ids of their own"
            )
        while document.id in self._chunks:
            before, _, after = document.id.rpartition("#")
            document = replace(document, id=f"{before}%23{after}")
        mark = "#"
        lines = document.lines(chunker, mark)
        while any(self._is_taken(name) for name in _chunk_ids(document, mark, lines)):
            mark += "#"
            lines = document.lines(chunker, mark)
        self._given.add(document.id)
        self._chunks.update(_chunk_ids(document, mark, lines))
        if document.parent is None:
            self._whole.add(document.id)
        else:
            self._divided.add(document.parent)
        return document, lines

    def _is_taken(self, chunk: str) -> bool:
        return chunk in self._given or chunk in self._chunks or chunk in self._reserved


def _chunk_ids(document: ImportedDocument, mark: str, lines: Sequence[bytes]) -> list[str]:
    return [f"{document.id}{mark}{number}" for number in range(len(lines))] if len(lines) > 1 else []
