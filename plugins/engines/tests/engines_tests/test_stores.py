"""Databases of the user's own are searched, and nothing is ever written to them: seen at the socket."""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psycopg
import pytest
from milvus_lite.server_manager import server_manager_instance
from pymilvus import MilvusClient

from engines_tests.servers import engine_url
from taugate.errors import InputError
from taugate.release.engine import GraphParameters
from taugate.retrieval.documents.store import Document
from taugate.retrieval.engines.engine import Engine, Rows, connect
from taugate.retrieval.index.flat import FlatIndex
from taugate_engines.stores import MilvusStore, PostgresStore
from tests.data.runs.qdrant_local import COLLECTION
from tests.data.runs.test_foreign_stores import QUERY, TEXTS, VECTORS, check_results, search_of
from tests.data.runs.watched_socket import WatchedSocket
from tests.postgres_process import postgres
from tests.retrieval.engines.corpus import soon
from tests.vectors import unit


def statements(sent: bytes) -> list[bytes]:
    """The statements in the messages Query and Parse of PostgreSQL's protocol; the first message has no type."""
    place, found = int.from_bytes(sent[:4], "big"), []
    while place < len(sent):
        kind, end = sent[place : place + 1], place + 1 + int.from_bytes(sent[place + 1 : place + 5], "big")
        parts = sent[place + 5 : end].split(b"\0")
        if kind in {b"Q", b"P"}:
            found.append(parts[kind == b"P"])
        place = end
    return found


def test_postgres_is_searched_and_cannot_be_written() -> None:
    with postgres() as (server,), tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as folder:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
            connection.execute("CREATE TABLE documents (id text, embedding vector(4), text text)")
            for text, vector in zip(TEXTS, VECTORS, strict=True):
                values = (text, json.dumps(vector.tolist()), text)
                connection.execute("INSERT INTO documents VALUES (%s, %s, %s)", values)
            connection.execute("CREATE FUNCTION wipe() RETURNS int LANGUAGE sql AS 'DELETE FROM documents RETURNING 1'")
        theirs = server.url.partition("host=")[2]
        with WatchedSocket(f"{theirs}/.s.PGSQL.5432", Path(folder) / ".s.PGSQL.5432") as watched:
            store = PostgresStore(f"postgresql://postgres@/postgres?host={folder}")
            check_results(search_of("pgvector", store), TEXTS)
            (sent,) = (statements(bytes(sent)) for sent in watched.connections)
            assert sent[0] == b"BEGIN READ ONLY"
            assert {statement.split()[0] for statement in sent} == {b"BEGIN", b"SELECT", b"COMMIT"}
            columns = "SELECT 7 AS id, .5 AS score, 'a % b' AS text, 2.5 AS a, NULL::float8 AS b WHERE $query <> ''"
            (result,) = search_of("pgvector", store, body=columns).search(QUERY)
            assert (result.id, result.score, result.text, result.scores) == ("7", 0.5, "a % b", {"a": 2.5})
            own = "SELECT id, wipe() AS score FROM documents WHERE text <> $query"
            with pytest.raises(InputError, match="read-only transaction.*; correct the request"):
                search_of("pgvector", store, body=own).search(QUERY)
            with pytest.raises(InputError, match="cannot insert multiple commands"):
                search_of("pgvector", store, body=f"{own}; COMMIT; SELECT wipe()").search(QUERY)
            with pytest.raises(InputError, match="not a SELECT, and nothing else is sent"):
                search_of("pgvector", store, body="DELETE FROM documents WHERE text = $query").search(QUERY)
            with pytest.raises(InputError, match='relation "nothing" does not exist; correct the request'):
                search_of("pgvector", store, body="SELECT $query, $depth FROM nothing").search(QUERY)


def test_milvus_is_searched_and_only_searched() -> None:
    with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as folder:
        path = f"{folder}/lite.db"
        client = MilvusClient(path)
        client.create_collection(COLLECTION, dimension=4, metric_type="COSINE")
        rows = [{"id": place, "vector": VECTORS[place].tolist(), "text": text} for place, text in enumerate(TEXTS)]
        client.insert(COLLECTION, rows)
        theirs = server_manager_instance.start_and_get_uri(path)
        assert theirs is not None
        server = theirs.removeprefix("unix:") if theirs.startswith("unix:") else urlsplit(theirs).port or 0
        try:
            with WatchedSocket(server) as watched:
                check_results(
                    search_of("milvus", MilvusStore(f"http://127.0.0.1:{watched.port}")), ["0", "1", "2", "3"]
                )
                sent = b"".join(watched.connections)
                calls = {*re.findall(rb"/milvus\.proto\.milvus\.MilvusService/(\w+)", sent)}
            assert calls <= {b"Connect", b"GetVersion", b"DescribeCollection", b"Search", b"Query", b"DescribeAlias"}
            assert {b"Search", b"Query"} <= calls
        finally:
            client.close()
            server_manager_instance.release_server(path)


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
