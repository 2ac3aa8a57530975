"""PostgreSQL's own behaviour: the plan of a search, and the storage of vectors."""

from collections.abc import Iterator

import numpy as np
import psycopg
import pytest

from engines_tests.servers import engine_url
from taugate.release.engine import GraphParameters
from taugate.retrieval.documents.store import Document
from taugate.retrieval.engines.engine import Engine, Rows, connect
from taugate.retrieval.index.flat import FlatIndex
from tests.retrieval.engines.corpus import soon
from tests.vectors import unit

NAME, WIDE = f"tg_{'0' * 32}", f"tg_{'1' * 32}"
N, D, COUNT = 1500, 128, 5
BROAD, NARROW = 1000, 5  # for which PostgreSQL reads the table, and goes through the graph
OFTEN = 20  # psycopg prepares a statement when it comes for the sixth time, and PostgreSQL plans that five times more


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with engine_url("pgvector") as (_, address):
        yield address


def test_narrow_search_ignores_earlier_broad_plans(url: str) -> None:
    rng = np.random.default_rng(8)
    vectors, queries = (unit(rng.standard_normal((count, D))) for count in (N, OFTEN))
    engine = connect("pgvector", [url])
    engine.create(NAME, D, soon())
    engine.upload(NAME, 0, Rows(vectors, [Document(f"d{i}", "text") for i in range(N)]), soon())
    engine.finish(NAME, GraphParameters(edges=2, edge_candidates=4), soon())  # so poor that it misses much

    def found(engine: Engine, breadth: int) -> list[list[int]]:
        collection = engine.collection(NAME, breadth, soon())
        return collection.propose(queries, COUNT, (), soon()).positions.tolist()

    assert found(engine, BROAD) == FlatIndex.build(vectors).search(queries, COUNT).positions.tolist()
    alone = found(connect("pgvector", [url]), NARROW)  # on a connection of its own
    assert found(engine, NARROW) == alone
    assert found(engine, BROAD) != alone


def test_longest_vector_is_stored_in_row(url: str) -> None:
    vector = unit(np.random.default_rng(9).standard_normal((1, 2000)))
    document = Document("d", "".join(map(str, range(20_000))), None, {"tags": [f"t{i}" for i in range(200)]})
    engine = connect("pgvector", [url])
    engine.create(WIDE, vector.shape[1], soon())
    engine.upload(WIDE, 0, Rows(vector, [document]), soon())

    found = engine.collection(WIDE, NARROW, soon()).fetch(np.zeros(1, dtype=np.int64), soon())
    assert found.vectors.tobytes() == vector.tobytes()
    assert [*found.documents] == [document]
    with psycopg.connect(url) as connection:
        storage = "SELECT attstorage::text FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'vector'"
        assert connection.execute(storage, (WIDE,)).fetchone() == ("p",)
