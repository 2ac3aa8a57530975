"""Endless replies of Redis are cut at a megabyte, and trickling ones after a second."""

import asyncio
import contextlib
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from taugate.service import replicas as fleet_module
from taugate.service.access.admission import tolerance
from taugate.service.redis_client import MAX_CACHED_BYTES, MAX_STATE_BYTES
from taugate.service.replicas import Fleet, RedisCache, SharedRates

_SENT = 64 << 20  # as much as it may send in all
_MOST = 8 * MAX_STATE_BYTES  # of memory: the answer, the parser's copies of it, and the buffers of the stream
_PATIENCE = 20.0  # seconds; for a service that would read on, as long as bytes come


class Flooding:
    """Answers every command by `begins`, and by `more` again and again."""

    def __init__(self, begins: bytes, more: bytes, pause: float = 0.0) -> None:
        self._begins, self._more, self._pause = begins, more, pause
        self.sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            client.recv(1 << 16)
            client.sendall(self._begins)
            while self.sent < _SENT:
                self.sent += client.send(self._more)
                time.sleep(self._pause)

    def close(self) -> None:
        self.sent = _SENT
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


ENDLESS = {
    "one value": (b"$3000000000\r\n", b"x" * (1 << 16)),
    "many values": (b"*1000000000\r\n", b"$1\r\nx\r\n" * 8192),
    "a line": (b"+", b"x" * (1 << 16)),
    "an error": (b"-ERR ", b"x" * (1 << 16)),
}


@pytest.fixture(params=ENDLESS.values(), ids=ENDLESS.keys())
def flooding(request: pytest.FixtureRequest) -> Iterator[Flooding]:
    server = Flooding(*request.param)
    yield server
    server.close()


def taken(work: Callable[[], object]) -> int:
    """Bytes of memory at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_endless_reply_to_drift_is_cut(flooding: Flooding) -> None:
    fleet = Fleet(flooding.url, "release", 60)
    assert taken(lambda: fleet.find("id", time.time())) < _MOST
    assert fleet.find("id", time.time()) is None
    fleet.close()


def test_endless_reply_to_cache_is_cut(flooding: Flooding) -> None:
    async def ask() -> None:
        store, rates = RedisCache(flooding.url, _PATIENCE, 60, lambda up: None), SharedRates(flooding.url, _PATIENCE)
        assert await store.get(["a", "b"]) == ("error", [None, None])
        assert await rates.spend("key", 1, 1, tolerance(1)) is None
        await store.close()
        await rates.close()

    assert taken(lambda: asyncio.run(ask())) < _MOST


def test_trickling_redis_reply_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "_TIMEOUT_SECONDS", 0.2)
    server = Flooding(b"$1000\r\n", b"x", pause=0.05)
    fleet = Fleet(server.url, "release", 60)
    assert fleet.find("id", time.time()) is None
    assert server.sent < 100  # of the 1,000 bytes that it announced
    fleet.close()
    server.close()


def test_oversized_value_is_not_written() -> None:
    async def put() -> int:
        store = RedisCache("redis://127.0.0.1:1/0", 0.1, 60, lambda up: None)
        store.put({"a": bytes(MAX_CACHED_BYTES)})
        return len(store._writes)

    assert asyncio.run(put()) == 0
