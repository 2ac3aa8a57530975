"""Engines that are away, silent or slow: one error within the deadline, one more try on the next server, no secret."""

import time

import numpy as np
import pytest

from taugate.errors import EngineUnavailable, InputError
from taugate.retrieval.engines.connect import connect
from taugate.retrieval.engines.engine import Candidates, EngineKind, Rows
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.engines.replicas import Replicas
from tests.loopback import HOST, free_port
from tests.retrieval.engines.corpus import COPIES, corpus, recorded, soon, upload
from tests.retrieval.engines.servers import engine_url, silent_server

URLS: dict[EngineKind, str] = {"milvus": "http://{host}:{port}", "pgvector": "postgresql://me:hunter2@{host}:{port}/db"}


@pytest.mark.parametrize("kind", URLS)
def test_nobody_there_is_one_error_that_names_the_place_and_no_password(kind: EngineKind) -> None:
    port = free_port()
    engine = connect(kind, [URLS[kind].format(host=HOST, port=port)], "hunter2")
    with pytest.raises(EngineUnavailable, match=f"{kind} at {HOST}:{port} does not answer in time") as caught:
        engine.names(soon(3))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("kind", URLS)
def test_a_server_that_never_answers_is_given_up_within_the_deadline(kind: EngineKind) -> None:
    with silent_server() as port:
        engine = connect(kind, [URLS[kind].format(host=HOST, port=port)])
        start = time.monotonic()
        with pytest.raises(EngineUnavailable, match="does not answer in time"):
            engine.names(soon(3))
        assert time.monotonic() - start < 15  # far less than any default of the libraries, whatever else runs


@pytest.mark.parametrize("name", ["milvus-lite", "pgvector"])
def test_a_replica_answers_where_the_first_server_does_not(name: str) -> None:
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


def test_the_server_that_answered_last_is_asked_first() -> None:
    asked: list[str] = []
    away = {"a"}

    def question(url: str, deadline: float) -> str:
        asked.append(url)
        if url in away:
            raise ConnectionError("refused")
        return url

    servers = Replicas("an engine", ["a", "b"], lambda url, deadline: url, lambda e: isinstance(e, ConnectionError))
    assert [servers.ask(question, soon()) for _ in range(3)] == ["b", "b", "b"]
    assert asked == ["a", "b", "b", "b"]
    away.update("b")
    with pytest.raises(EngineUnavailable, match="refused"):
        servers.ask(question, soon())
    assert asked[4:] == ["b", "a"]
    away.clear()
    assert servers.ask(question, soon()) == "b"


def test_half_of_the_time_is_left_for_the_second_server_and_a_write_is_not_repeated() -> None:
    limits: list[float] = []

    def question(url: str, deadline: float) -> None:
        limits.append(deadline - time.monotonic())
        raise TimeoutError

    servers = Replicas("an engine", ["a"], lambda url, deadline: url, lambda e: False)
    with pytest.raises(EngineUnavailable, match="TimeoutError"):
        servers.ask(question, soon(100))
    assert 45 < limits[0] <= 50
    assert 90 < limits[1] <= 100
    with pytest.raises(EngineUnavailable):
        servers.ask(question, soon(100), again=False)
    assert len(limits) == 3
    with pytest.raises(EngineUnavailable, match="no time is left"):
        servers.ask(question, soon(-1))
    assert len(limits) == 3


def test_a_fault_of_our_own_is_not_taken_for_an_engine_that_is_away() -> None:
    servers = Replicas("an engine", ["a"], lambda url, deadline: url, lambda e: isinstance(e, ConnectionError))
    with pytest.raises(ZeroDivisionError):
        servers.ask(lambda url, deadline: 1 // 0, soon())
    with pytest.raises(InputError, match="no URL"):
        connect("milvus", [])


class Fake:
    """A collection that proposes a share of what it is asked for, and counts how often."""

    name, dimension = "tg_fake", corpus(1).vectors.shape[1]

    def __init__(self, rows: Rows, most: int) -> None:
        self.rows, self.most, self.asked = rows, most, list[int]()

    def propose(self, queries: np.ndarray, count: int, wanted: object, deadline: float) -> Candidates:
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


def test_it_asks_again_four_times_as_wide_while_copies_may_be_missing() -> None:
    rows = corpus()
    fake = Fake(rows, most=len(rows.vectors))
    top = EngineIndex(fake, len(rows.vectors), 60).search(rows.vectors[[0, COPIES[0]]], 10)
    assert fake.asked == [26, 104]
    assert top.positions[1].tolist() == COPIES[:10].tolist()


def test_a_list_that_is_too_short_is_an_error_and_never_a_result() -> None:
    fake = Fake(corpus(), most=9)
    with pytest.raises(EngineUnavailable, match="proposes fewer than 10 documents"):
        EngineIndex(fake, 1500, 60).search(corpus().vectors[:1], 10)
    assert fake.asked == [26, 104, 416]
