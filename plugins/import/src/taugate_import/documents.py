"""A document to be written to a corpus, and its lines in the corpus."""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

from taugate.data.parsed import ParsedDocument
from taugate.errors import InputError
from taugate.retrieval.documents.store import MetadataValue
from taugate.storage.files import Json
from taugate_import.chunker import Chunk, Chunker


@dataclass(frozen=True, slots=True)
class ImportedDocument:
    """A document of any source.

    Attributes:
        id: Its id in the corpus and in judgements; the ids of its chunks begin with it.
        as_written: Whether title and text are kept exactly if they fit in a chunk, as for documents of data sets.
        parent: Parent of a passage that has been a chunk before and is not divided again; None for whole documents.
        span: Span of such a passage in its parent; None for whole documents.
        changed_at: Time of the last change of its file, in seconds since 1970; infinite if it has none.
    """

    id: str
    content: ParsedDocument
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    as_written: bool = False
    parent: str | None = None
    span: tuple[int, int] | None = None
    changed_at: float = math.inf

    @property
    def document_id(self) -> str:
        """The id of the document that is counted: the parent's, else its own."""
        return self.parent or self.id

    def lines(self, chunker: Chunker | None, mark: str = "#") -> list[bytes]:
        """Return the lines of the corpus: one per chunk, with parent and span if there are several."""
        chunks = self._chunks(chunker)
        lines = []
        for number, chunk in enumerate(chunks):
            chunk_fields: dict[str, Json] = {"heading": chunk.heading, "page": chunk.page}
            line: dict[str, Json] = {
                "_id": f"{self.id}{mark}{number}" if len(chunks) > 1 else self.id,
                "title": chunk.title,
                "text": self.content.text[chunk.start : chunk.end],
                "metadata": {
                    **self.metadata,
                    **{name: value for name, value in chunk_fields.items() if value not in {None, ""}},
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
    """The unique ids of the lines of a corpus, although a document may have the name of another document's chunk.

    Attributes:
        reserved: Ids that no chunk may have, as judgements identify a document by them.
    """

    def __init__(self, reserved: Container[str] = ()) -> None:
        self._reserved = reserved
        self._original: set[str] = set()  # ids of documents, and of chunks of data sets
        self._chunks: set[str] = set()  # ids generated for chunks
        self._whole: set[str] = set()  # ids of documents that were not divided before
        self._divided: set[str] = set()  # ids of documents that were

    def lines(self, document: ImportedDocument, chunker: Chunker | None) -> tuple[ImportedDocument, list[bytes]]:
        """Return a document with its id in the corpus, and its lines.

        `manual#0` beside chunks of `manual` becomes `manual%230`. If it comes before `manual`, the chunks of `manual`
        are `manual##0` and so on.
        """
        conflicting = self._divided if document.parent is None else self._whole
        if document.id in self._original or document.document_id in conflicting:
            raise InputError(f"two documents have the id {document.id!r}; make the ids unique across all sources")
        while document.id in self._chunks:
            before, _, after = document.id.rpartition("#")
            document = replace(document, id=f"{before}%23{after}")
        mark = "#"
        lines = document.lines(chunker, mark)
        while any(self._is_taken(name) for name in _chunk_ids(document, mark, lines)):
            mark += "#"
            lines = document.lines(chunker, mark)
        self._original.add(document.id)
        self._chunks.update(_chunk_ids(document, mark, lines))
        if document.parent is None:
            self._whole.add(document.id)
        else:
            self._divided.add(document.parent)
        return document, lines

    def _is_taken(self, chunk: str) -> bool:
        return chunk in self._original or chunk in self._chunks or chunk in self._reserved


def _chunk_ids(document: ImportedDocument, mark: str, lines: Sequence[bytes]) -> list[str]:
    return [f"{document.id}{mark}{number}" for number in range(len(lines))] if len(lines) > 1 else []
