"""A document on its way into a corpus, and the lines that it becomes there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from taugate.ingestion.chunks.chunker import Chunk, Chunker
from taugate.ingestion.parsed import ParsedDocument
from taugate.retrieval.documents.store import MetadataValue


@dataclass(frozen=True, slots=True)
class ImportedDocument:
    """A document of any source.

    id: names it in the corpus and in judgements, and its chunks begin with it. content: its title and text, with the
    blocks that chunks respect. metadata: of each of its chunks. as_written: whether title and text stay exactly as they
    are where they fit a chunk, as those of data sets do. parent, span: those of a passage that was a chunk already,
    which is not divided again; None for whole documents.
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

    def lines(self, chunker: Chunker | None) -> list[bytes]:
        """Return the lines of the corpus: one a chunk, each with its parent and span where there are several.

        chunker: divides the document, None leaves it whole.
        """
        chunks = self._chunks(chunker)
        lines = []
        for number, chunk in enumerate(chunks):
            own: dict[str, Any] = {"heading": chunk.heading, "page": chunk.page}
            line: dict[str, Any] = {
                "_id": f"{self.id}#{number}" if len(chunks) > 1 else self.id,
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
