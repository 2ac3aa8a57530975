"""A collection is loaded if every responding server has it; an unavailable server causes no delay."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psycopg
import pytest

from engines_tests.servers import silent_server
from taugate.calibration import engines as uploading
from taugate.calibration.engines import ensure_uploaded
from taugate.calibration.progress import Job
from taugate.errors import EngineUnavailable, InputError, ReleaseError
from taugate.release.engine import EngineKind
from taugate.retrieval.documents.store import Document, write_document
from taugate.retrieval.engines.engine import CollectionState, Rows, connect, engine_from_environment, open_verified
from taugate_engines import replicas
from taugate_engines.milvus import ROWS_A_REQUEST, requests
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


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "taugate_engines.milvus", raising=False)
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(
        InputError, match=r"^milvus: pymilvus is not installed; pip install 'taugate-engines\[milvus\]'"
    ):
        engine_from_environment("milvus", {"TAUGATE_ENGINE_URL": "http://h"})


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("milvus", "me:hunter2@host:19530"),
        ("milvus", "postgresql://me:hunter2@host/db"),
        ("milvus", "http://me:hunter2@host:port"),
        ("milvus", "http://me:hunter2@[::1"),
        ("pgvector", "http://me:hunter2@host:19530"),
        ("pgvector", "postgres//me:hunter2@host/db"),
        ("pgvector", "postgresql://me:hunter2@host/db?nonsense=1"),
    ],
)
def test_invalid_url_is_refused_unrepeated(kind: EngineKind, url: str) -> None:
    with pytest.raises(InputError, match=f"^TAUGATE_ENGINE_URL: not a URL of {kind}; write it as ") as refused:
        engine_from_environment(kind, {"TAUGATE_ENGINE_URL": url})
    assert "hunter2" not in str(refused.value)


def test_import_keeps_log_handlers() -> None:
    """Asked of a process of its own, as a module is imported once."""
    code = (
        "import logging\n"
        "from taugate.retrieval.engines.engine import connect\n"
        "class Handler(logging.Handler):\n"
        "    def close(self): print('closed')\n"
        "handler = Handler()\n"
        "connect('milvus', ['http://h']), connect('pgvector', ['postgresql://h/db'])\n"
        "assert handler in [each() for each in logging._handlerList]\n"
        "print('open', logging.config.dictConfig.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "open dictConfig"


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
