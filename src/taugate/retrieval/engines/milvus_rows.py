"""Rows in the form that Milvus accepts: their fields, the largest size of a document, and rows per request."""

from collections.abc import Iterator
from typing import TypedDict

import orjson

from taugate.errors import InputError
from taugate.retrieval.documents.store import Document, write_document
from taugate.retrieval.engines.engine import Rows
from taugate.retrieval.engines.filters import filterable
from taugate.retrieval.vectors.similarity import Float32

MAX_BYTES = 65_535  # limit of a VARCHAR and of a JSON field
ROWS_A_REQUEST = 4096  # 4096 × (1.5 KB + 1 KB) is well below the 64 MB that a server accepts by default
_BYTES_A_REQUEST = 32 << 20  # fewer long documents are sent together


class MilvusRow(TypedDict):
    """A row of a collection."""

    position: int
    vector: Float32
    document: str
    filters: dict[str, list[str] | dict[str, float]]


def requests(first: int, shard: Rows) -> Iterator[list[MilvusRow]]:
    """Yield the rows of a shard in parts that fit into one request.

    Args:
        first: Position of the first row.
        shard: Rows to send.

    Raises:
        InputError: If a document is too large for Milvus.
    """
    part: list[MilvusRow] = []
    size_of_part = 0
    for position, (vector, document) in enumerate(zip(shard.vectors, shard.documents, strict=True), first):
        row, size = _row(position, vector, document)
        if len(part) == ROWS_A_REQUEST or (part and size_of_part + size > _BYTES_A_REQUEST):
            yield part
            part, size_of_part = [], 0
        part.append(row)
        size_of_part += size
    if part:
        yield part


def _row(position: int, vector: Float32, document: Document) -> tuple[MilvusRow, int]:
    """Return a row and its size in bytes."""
    fields = filterable(document)
    filters: dict[str, list[str] | dict[str, float]] = {"tokens": fields.tokens, "numbers": fields.numbers}
    written = write_document(document)
    sizes = {"text": len(written), "metadata": len(orjson.dumps(filters))}
    for part, size in sizes.items():
        if size > MAX_BYTES:
            raise InputError(
                f"document {document.id!r}: {part} of {size:,} bytes, but Milvus accepts {MAX_BYTES:,}; "
                "split it into chunks"
            )
    row: MilvusRow = {"position": position, "vector": vector, "document": written.decode(), "filters": filters}
    return row, vector.nbytes + sum(sizes.values())
