"""Unavailable, silent or slow engines: one error within the deadline, one retry on the next server, no secrets."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines_tests.servers import engine_url, silent_server
from taugate.data.runs.search_request import StoreSearch
from taugate.errors import EngineUnavailable, InputError
from taugate.release.engine import EngineKind
from taugate.retrieval.engines.engine import Candidates, Rows, connect
from taugate.retrieval.engines.search import EngineIndex
from taugate_engines.replicas import Replicas
from taugate_engines.stores import MilvusStore, PostgresStore
from tests.data.runs.test_odd_replies import JSON, ODD, QUERY, check, good_result, places, replaced, request_of
from tests.loopback import HOST, free_port
from tests.pace import at_most
from tests.retrieval.engines.corpus import COPIES, corpus, recorded, soon, upload

URLS: dict[EngineKind, str] = {"milvus": "http://{host}:{port}", "pgvector": "postgresql://me:hunter2@{host}:{port}/db"}


@pytest.mark.parametrize("kind", URLS)
def test_absent_server_error_hides_password(kind: EngineKind) -> None:
    port = free_port()
    engine = connect(kind, [URLS[kind].format(host=HOST, port=port)], "hunter2")
    with pytest.raises(EngineUnavailable, match=f"{kind} at {HOST}:{port} does not respond in time") as caught:
        engine.names(soon(3))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("kind", URLS)
@pytest.mark.slow
def test_silent_server_times_out(kind: EngineKind) -> None:
    with silent_server() as port:
        engine = connect(kind, [URLS[kind].format(host=HOST, port=port)])
        start = time.monotonic()
        with pytest.raises(EngineUnavailable, match="does not respond in time"):
            engine.names(soon(3))
        assert time.monotonic() - start < at_most(15)  # far less than any default of the libraries


@pytest.mark.parametrize("name", ["milvus-lite", "pgvector"])
def test_replica_replaces_unavailable_server(name: str) -> None:
    with engine_url(name) as (kind, url):
        writer = connect(kind, [url])
        record = recorded(writer, corpus(50))
        upload(writer, record.collection, corpus(50))
        away = URLS[kind].format(host=HOST, port=free_port())
        reader = connect(kind, [away, url])
        collection = reader.collection(record.collection, 64, soon(20))
        assert collection.state(soon(20)).rows == 50
        index = EngineIndex(collection, 50, 20)
        assert index.search(corpus(50).vectors[COPIES[:1]], 1).positions.tolist() == [[COPIES[0]]]


def test_last_responsive_server_is_tried_first() -> None:
    asked: list[str] = []
    away = {"a"}

    def question(url: str, deadline: float) -> str:
        asked.append(url)
        if url in away:
            raise ConnectionError("refused")
        return url

    servers = Replicas("an engine", ["a", "b"], lambda url, deadline: url, lambda e: isinstance(e, ConnectionError))
    assert [servers.run(question, soon()) for _ in range(3)] == ["b", "b", "b"]
    assert asked == ["a", "b", "b", "b"]
    away.update("b")
    with pytest.raises(EngineUnavailable, match="refused"):
        servers.run(question, soon())
    assert asked[4:] == ["b", "a"]
    away.clear()
    assert servers.run(question, soon()) == "b"


def test_second_server_gets_half_of_time() -> None:
    limits: list[float] = []

    def question(url: str, deadline: float) -> None:
        limits.append(deadline - time.monotonic())
        raise TimeoutError

    servers = Replicas("an engine", ["a"], lambda url, deadline: url, lambda e: False)
    with pytest.raises(EngineUnavailable, match="TimeoutError"):
        servers.run(question, soon(100))
    assert 45 < limits[0] <= 50
    assert 90 < limits[1] <= 100
    with pytest.raises(EngineUnavailable):
        servers.run(question, soon(100), retry=False)
    assert len(limits) == 3
    with pytest.raises(EngineUnavailable, match="no time is left"):
        servers.run(question, soon(-1))
    assert len(limits) == 3


def test_own_fault_is_not_unavailability() -> None:
    servers = Replicas("an engine", ["a"], lambda url, deadline: url, lambda e: isinstance(e, ConnectionError))
    with pytest.raises(ZeroDivisionError):
        servers.run(lambda url, deadline: 1 // 0, soon())
    with pytest.raises(InputError, match="no URL"):
        connect("milvus", [])


class Fake:
    """A collection that proposes a share of what it is asked for, and counts how often."""

    name, dimension = "tg_fake", corpus(1).vectors.shape[1]

    def __init__(self, rows: Rows, most: int) -> None:
        self.rows, self.most, self.asked = rows, most, list[int]()

    def propose(self, queries: np.ndarray, count: int, query_filter: object, deadline: float) -> Candidates:
        self.asked.append(count)
        positions = np.full((len(queries), count), -1)
        vectors = np.zeros((len(queries), count, self.dimension), dtype=np.float32)
        for row, query in enumerate(queries):
            # of equal similarities the higher position first: against Taugate's order
            best = np.lexsort((-np.arange(len(self.rows.vectors)), -(self.rows.vectors @ query)))
            best = best[: min(count, self.most)]
            positions[row, : len(best)], vectors[row, : len(best)] = best, self.rows.vectors[best]
        found = np.unique(positions[positions >= 0]).tolist()
        return Candidates(positions, vectors, {position: self.rows.documents[position] for position in found})


def test_search_widens_for_missing_copies() -> None:
    rows = corpus()
    fake = Fake(rows, most=len(rows.vectors))
    top = EngineIndex(fake, len(rows.vectors), 60).search(rows.vectors[[0, COPIES[0]]], 10)
    assert fake.asked == [26, 104]
    assert top.positions[1].tolist() == COPIES[:10].tolist()


def test_too_few_candidates_raise() -> None:
    fake = Fake(corpus(), most=9)
    with pytest.raises(EngineUnavailable, match="returned fewer than 10 documents"):
        EngineIndex(fake, 1500, 60).search(corpus().vectors[:1], 10)
    assert fake.asked == [26, 104, 416]


KINDS = ["pgvector", "milvus"]


class Servers:
    """Stands in for the clients of PostgreSQL and Milvus."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.description = [type("Column", (), {"name": name}) for name in ("id", "score", "text", "words")]

    def run(self, name: str, request: Callable[..., Any], deadline: float) -> Any:
        return request(self, deadline) if request.__code__.co_argcount == 2 else request(self)

    def execute(self, statement: bytes, values: Any) -> "Servers":
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.reply]

    def search(self, path: str, **arguments: Any) -> Any:
        return self.reply

    def query(self, path: str, **arguments: Any) -> Any:
        return self.reply


def good_reply(kind: str) -> Any:
    if kind == "pgvector":
        return [{"id": "d1", "score": 0.5, "text": "a roof", "words": 0.25}]
    return [[good_result(request_of(kind))]]


def search_with(kind: str, path: tuple[str | int, ...], odd: Any) -> StoreSearch:
    store: Any = object.__new__(PostgresStore if kind == "pgvector" else MilvusStore)
    store._servers = Servers(replaced(good_reply(kind), path, odd))
    return StoreSearch(request_of(kind), store)


def all_places(kind: str) -> list[tuple[str | int, ...]]:
    paths = places(good_reply(kind))
    # A database gives rows with the columns of the statement; only their values are of any type.
    return [path for path in paths if len(path) == 2] if kind == "pgvector" else paths


@pytest.mark.parametrize("kind", KINDS)
def test_odd_value_at_every_place_gives_one_sentence(kind: str) -> None:
    (result,) = search_with(kind, (), good_reply(kind)).search(QUERY)
    assert (result.id, result.score, result.text) == ("d1", 0.5, "a roof")
    for path in all_places(kind):
        for odd in ODD:
            check(search_with(kind, path, odd))


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(KINDS), place=st.integers(0, 100), odd=JSON)
def test_any_value_gives_one_sentence(kind: str, place: int, odd: Any) -> None:
    paths = all_places(kind)
    check(search_with(kind, paths[place % len(paths)], odd))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("odd", [None, True, {"a": 1}, [1], ""])
def test_result_without_usable_id_is_refused(kind: str, odd: Any) -> None:
    place = (0, "id") if kind == "pgvector" else (0, 0, "id")
    with pytest.raises(InputError, match="has no id at"):
        search_with(kind, place, odd).search(QUERY)
