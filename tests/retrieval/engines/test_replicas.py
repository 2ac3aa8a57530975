"""A collection is loaded where every server that answers has it; a server that is away holds nobody up."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from taugate.calibration.engines import upload as uploading
from taugate.calibration.engines.upload import ensure_uploaded
from taugate.calibration.progress import Stopwatch
from taugate.errors import EngineUnavailable, ReleaseError
from taugate.retrieval.engines import replicas
from taugate.retrieval.engines.connect import connect
from taugate.retrieval.engines.engine import CollectionState
from taugate.retrieval.engines.replicas import Replicas
from taugate.retrieval.engines.verify import open_verified
from tests.postgres_process import PostgresProcess, postgres
from tests.retrieval.engines.corpus import D, corpus, recorded, soon, upload
from tests.retrieval.engines.servers import silent_server


def servers(*names: str) -> Replicas[str]:
    return Replicas("an engine", names, lambda url, deadline: url, lambda error: isinstance(error, ConnectionError))


def test_each_server_is_asked_and_those_that_are_away_are_left_out() -> None:
    def question(url: str, deadline: float) -> str:
        if url in away:
            raise ConnectionError("refused")
        return url

    away = {"b"}
    assert servers("a", "b", "c").ask_each(question, soon()) == ["a", "c"]
    away.update("ac")
    with pytest.raises(EngineUnavailable, match=r"an engine at .* does not answer in time \(refused\)"):
        servers("a", "b", "c").ask_each(question, soon())
    with pytest.raises(EngineUnavailable, match="no time is left"):
        servers("x", "y").ask_each(question, soon(-1))
    with pytest.raises(ZeroDivisionError):
        servers("x", "y").ask_each(lambda url, deadline: 1 // 0, soon())


def test_a_silent_one_costs_no_more_than_ten_seconds_and_one_alone_is_asked_twice() -> None:
    limits: list[float] = []

    def question(url: str, deadline: float) -> str:
        limits.append(deadline - time.monotonic())
        if url == "silent" or len(limits) == 4:
            raise TimeoutError
        return url

    assert servers("a", "silent", "c").ask_each(question, soon(90)) == ["a", "c"]
    assert limits == pytest.approx([30, replicas._SLOWER, replicas._SLOWER], abs=1)
    assert servers("a").ask_each(question, soon(90)) == ["a"]
    assert len(limits) == 5


def test_a_collection_is_loaded_where_no_server_says_something_else() -> None:
    whole = CollectionState(D, 9, built=True, pending=0, loaded=True)
    behind = CollectionState(D, 8, built=True, pending=0, loaded=True)
    assert CollectionState.of_all([whole, whole]) == whole
    assert CollectionState.of_all([whole, behind]) == CollectionState(D, 9, built=True, pending=0, loaded=False)


def replay(replica: PostgresProcess, *, go_on: bool) -> None:
    with psycopg.connect(replica.url) as connection:
        connection.execute(f"SELECT pg_wal_replay_{'resume' if go_on else 'pause'}()")


def test_a_replica_that_is_behind_is_waited_for_and_no_release_is_served_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = corpus(300)
    with postgres(replicas=1) as (primary, replica), silent_server() as port:
        engine = connect("pgvector", [primary.url, replica.url])
        record = recorded(engine, rows)
        replay(replica, go_on=False)
        upload(engine, record.collection, rows)
        with pytest.raises(ReleaseError, match="is not loaded on every replica; load it, or wait for one"):
            open_verified(engine, record, D, soon())
        silent = connect("pgvector", [primary.url, f"postgresql://postgres@127.0.0.1:{port}/postgres"])
        monkeypatch.setattr(replicas, "_SLOWER", 0.5)
        open_verified(silent, record, D, soon())

        threading.Timer(2, lambda: replay(replica, go_on=True)).start()
        said: list[str] = []
        vectors: Any = np.empty((300, D))
        monkeypatch.setattr(uploading, "corpus_rows", lambda spool, vectors: pytest.fail("nothing is to be uploaded"))
        ensure_uploaded(engine, record, Path(), vectors, said.append, Stopwatch())
        assert said == [f"the engine has {record.collection} already; nothing is uploaded"]
        with psycopg.connect(primary.url) as connection:
            question = "SELECT count(*) FROM pg_indexes WHERE tablename = %s AND indexdef LIKE '%%hnsw%%'"
            assert connection.execute(question, (record.collection,)).fetchone() == (1,)
