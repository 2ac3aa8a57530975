"""Rows as Milvus takes them: what one holds, how long its document may be, and how many are sent together."""

from collections.abc import Iterator
from typing import Any

import orjson

from taugate.errors import InputError
from taugate.retrieval.documents.store import Document, write_document
from taugate.retrieval.engines.engine import Rows
from taugate.retrieval.engines.filters import filterable
from taugate.retrieval.vectors.similarity import Float32

MAX_BYTES = 65_535  # of a VARCHAR, and of a JSON field
ROWS_A_REQUEST = 4096  # 4096 × (1.5 KB + 1 KB) stays well below the 64 MB that a server takes by default
_BYTES_A_REQUEST = 32 << 20  # of long documents, fewer are sent together


def requests(first: int, shard: Rows) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a shard in parts that a server takes at once.

    Args:
        first: The position of its first row.

    Raises:
        InputError: For a document that Milvus does not hold.
    """
    part: list[dict[str, Any]] = []
    held = 0
    for position, (vector, document) in enumerate(zip(shard.vectors, shard.documents, strict=True), first):
        row, size = _row(position, vector, document)
        if len(part) == ROWS_A_REQUEST or (part and held + size > _BYTES_A_REQUEST):
            yield part
            part, held = [], 0
        part.append(row)
        held += size
    if part:
        yield part


def _row(position: int, vector: Float32, document: Document) -> tuple[dict[str, Any], int]:
    """Return a row, and how many bytes it has."""
    held = filterable(document)
    filters = {"tokens": held.tokens, "numbers": held.numbers}
    written = write_document(document)
    sizes = {"text": len(written), "metadata": len(orjson.dumps(filters))}
    for what, size in sizes.items():
        if size > MAX_BYTES:
            raise InputError(
                f"document {document.id!r}: {what} of {size:,} bytes, and Milvus holds {MAX_BYTES:,}; "
                "divide it into chunks"
            )
    row = {"position": position, "vector": vector, "document": written.decode(), "filters": filters}
    return row, vector.nbytes + sum(sizes.values())
