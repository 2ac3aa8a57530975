"""A collection is loaded if every responding server has it; an unavailable server causes no delay."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from engines_tests.servers import silent_server
from taugate.calibration import engines as uploading
from taugate.calibration.engines import ensure_uploaded
from taugate.calibration.progress import Job
from taugate.errors import EngineUnavailable, ReleaseError
from taugate.retrieval.engines.engine import CollectionState, connect, open_verified
from taugate_engines import replicas
from taugate_engines.replicas import Replicas
from tests.postgres_process import PostgresProcess, postgres
from tests.retrieval.engines.corpus import D, corpus, recorded, soon, upload


def servers(*names: str) -> Replicas[str]:
    return Replicas("an engine", names, lambda url, deadline: url, lambda error: isinstance(error, ConnectionError))


def test_run_on_each_skips_unavailable_servers() -> None:
    def question(url: str, deadline: float) -> str:
        if url in away:
            raise ConnectionError("refused")
        return url

    away = {"b"}
    assert servers("a", "b", "c").run_on_each(question, soon()) == ["a", "c"]
    away.update("ac")
    with pytest.raises(EngineUnavailable, match=r"an engine at .* does not respond in time \(refused\)"):
        servers("a", "b", "c").run_on_each(question, soon())
    with pytest.raises(EngineUnavailable, match="no time is left"):
        servers("x", "y").run_on_each(question, soon(-1))
    with pytest.raises(ZeroDivisionError):
        servers("x", "y").run_on_each(lambda url, deadline: 1 // 0, soon())


@pytest.mark.slow
def test_run_on_each_limits_silent_server() -> None:
    limits: list[float] = []

    def question(url: str, deadline: float) -> str:
        limits.append(deadline - time.monotonic())
        if url == "silent" or len(limits) == 4:
            raise TimeoutError
        return url

    assert servers("a", "silent", "c").run_on_each(question, soon(90)) == ["a", "c"]
    assert limits == pytest.approx([30, replicas._MAX_LAG, replicas._MAX_LAG], abs=1)
    assert servers("a").run_on_each(question, soon(90)) == ["a"]
    assert len(limits) == 5


def test_collection_is_loaded_if_all_agree() -> None:
    whole = CollectionState(D, 9, built=True, pending=0, loaded=True)
    behind = CollectionState(D, 8, built=True, pending=0, loaded=True)
    assert CollectionState.of_all([whole, whole]) == whole
    assert CollectionState.of_all([whole, behind]) == CollectionState(D, 9, built=True, pending=0, loaded=False)


def replay(replica: PostgresProcess, *, go_on: bool) -> None:
    with psycopg.connect(replica.url) as connection:
        connection.execute(f"SELECT pg_wal_replay_{'resume' if go_on else 'pause'}()")


@pytest.mark.slow
def test_lagging_replica_delays_release(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = corpus(300)
    with postgres(replicas=1) as (primary, replica), silent_server() as port:
        engine = connect("pgvector", [primary.url, replica.url])
        record = recorded(engine, rows)
        replay(replica, go_on=False)
        upload(engine, record.collection, rows)
        with pytest.raises(ReleaseError, match="is not loaded on every replica; load it, or wait for the slowest"):
            open_verified(engine, record, D, soon())
        silent = connect("pgvector", [primary.url, f"postgresql://postgres@127.0.0.1:{port}/postgres"])
        monkeypatch.setattr(replicas, "_MAX_LAG", 0.5)
        open_verified(silent, record, D, soon())

        threading.Timer(2, lambda: replay(replica, go_on=True)).start()
        said: list[str] = []
        vectors: Any = np.empty((300, D))
        monkeypatch.setattr(uploading, "corpus_rows", lambda spool, vectors: pytest.fail("nothing is to be uploaded"))
        ensure_uploaded(engine, record, Path(), vectors, Job(said.append))
        assert said == [f"the engine already has {record.collection}; nothing to upload"]
        with psycopg.connect(primary.url) as connection:
            question = "SELECT count(*) FROM pg_indexes WHERE tablename = %s AND indexdef LIKE '%%hnsw%%'"
            assert connection.execute(question, (record.collection,)).fetchone() == (1,)
