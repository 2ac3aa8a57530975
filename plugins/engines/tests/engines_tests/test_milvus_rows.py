"""Rows for Milvus: batches within the server's limits, in order, and without documents that are too large."""

import numpy as np
import orjson
import pytest

from taugate.errors import InputError
from taugate.retrieval.documents.store import Document, write_document
from taugate.retrieval.engines.engine import Rows
from taugate_engines.milvus import ROWS_A_REQUEST, requests


def rows(count: int, characters: int, **metadata: list[str]) -> Rows:
    documents = [Document(f"d{number}", "x" * characters, None, metadata) for number in range(count)]
    return Rows(np.zeros((count, 8), dtype=np.float32), documents)


@pytest.mark.parametrize(("count", "characters"), [(9000, 10), (1100, 60_000), (1, 10), (ROWS_A_REQUEST, 1)])
def test_requests_stay_within_server_limit(count: int, characters: int) -> None:
    content = rows(count, characters)
    parts = [*requests(7, content)]
    together = [row for part in parts for row in part]
    assert [row["position"] for row in together] == [*range(7, 7 + count)]
    assert [row["document"].encode() for row in together] == [*map(write_document, content.documents)]
    for part in parts:
        assert 0 < len(part) <= ROWS_A_REQUEST
        sizes = [32 + len(row["document"]) + len(orjson.dumps(row["filters"])) for row in part]
        assert sum(sizes) <= 32 << 20
    assert len(parts) == max(-(-count // ROWS_A_REQUEST), -(-count * (characters + 120) // (32 << 20)))


def test_oversized_document_is_named() -> None:
    with pytest.raises(InputError, match="^document 'd0': text of 65,5.. bytes, but Milvus accepts 65,535; split"):
        [*requests(0, rows(1, 65_500))]
    with pytest.raises(InputError, match="^document 'd0': metadata of .* bytes, but Milvus accepts 65,535"):
        [*requests(0, rows(1, 1, tags=[f"t{number}" for number in range(3000)]))]
