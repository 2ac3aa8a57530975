"""Documents that meet a filter but are too far from a query for an engine's graph."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import numpy as np
import psycopg
import pytest

from engines_tests.servers import NAMES, engine_url
from taugate.errors import EngineUnavailable
from taugate.retrieval.documents.filters import Filter, OneOf
from taugate.retrieval.documents.store import Document
from taugate.retrieval.engines import search
from taugate.retrieval.engines.engine import Rows, connect
from taugate.retrieval.engines.search import EngineIndex
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import DocumentSubset, TopK
from taugate_engines import pgvector
from tests.retrieval.engines.corpus import recorded, soon, upload
from tests.vectors import unit

NEAR, FAR, D, K = 3000, 600, 8, 10
TENANT: Filter = (OneOf.of("tenant", "far"),)
# As with millions of documents: the graph is scanned, and the scan ends long before it has seen all of it.
OPTIONS = "-c hnsw.max_scan_tuples=1 -c enable_seqscan=off -c enable_bitmapscan=off"


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Documents near the queries, and, all on the other side, those of a tenant."""
    noise = 0.3 * np.random.default_rng(1).standard_normal((NEAR + FAR, D))
    noise[:, 0] += np.where(np.arange(NEAR + FAR) < NEAR, 1, -1)
    tenants = [{"tenant": "near" if i < NEAR else "far"} for i in range(NEAR + FAR)]
    return Rows(unit(noise), [Document(f"d{i}", "text", None, tenant) for i, tenant in enumerate(tenants)])


@contextmanager
def uploaded(name: str, rows: Rows) -> Iterator[EngineIndex]:
    with engine_url(name) as (kind, url):
        engine = connect(kind, [f"{url}&options={quote(OPTIONS)}" if name == "pgvector" else url])
        record = recorded(engine, rows)
        upload(engine, record.collection, rows)
        try:
            yield EngineIndex(engine.collection(record.collection, 40, soon()), NEAR + FAR, 20)
        finally:
            engine.drop(record.collection, soon())


@pytest.fixture(scope="module", params=NAMES)
def index(request: pytest.FixtureRequest, rows: Rows) -> Iterator[EngineIndex]:
    with uploaded(request.param, rows) as made:
        yield made


@pytest.fixture(scope="module")
def pgvector_index(rows: Rows) -> Iterator[EngineIndex]:
    with uploaded("pgvector", rows) as made:
        yield made


def check_exact(index: EngineIndex, rows: Rows) -> TopK:
    queries = rows.vectors[:3]
    found = index.find(queries, K, TENANT)
    truth = FlatIndex.build(rows.vectors).search_within(queries, K, DocumentSubset(np.arange(NEAR + FAR) >= NEAR))
    assert found.positions.tolist() == truth.positions.tolist()
    assert found.scores.tobytes() == truth.scores.tobytes()
    for position in np.unique(found.positions).tolist():
        assert found.candidates[position].document == rows.documents[position]
    return found


@pytest.mark.slow
def test_far_documents_are_found(index: EngineIndex, rows: Rows) -> None:
    check_exact(index, rows)


def test_postgresql_scans_all_far_documents(
    pgvector_index: EngineIndex, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_SCANNED", FAR - 1)
    assert check_exact(pgvector_index, rows).approximate


def test_slow_scan_is_abandoned(pgvector_index: EngineIndex, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_SCANNED", FAR - 1)
    execute = psycopg.Cursor.execute

    def slow(cursor: Any, statement: bytes, *given: Any, **options: Any) -> Any:
        asked = (b"SELECT pg_sleep(60)",) if options.get("prepare") is False else (statement, *given)
        return execute(cursor, *asked, **options)

    with monkeypatch.context() as patch, pytest.raises(EngineUnavailable, match="returned fewer than 10 documents"):
        patch.setattr(psycopg.Cursor, "execute", slow)
        patch.setattr(pgvector, "_SCAN_SHARE", 0.01)
        pgvector_index.find(rows.vectors[:2], K, TENANT)
    assert pgvector_index.find(rows.vectors[:1], K, TENANT).positions.shape == (1, K)
