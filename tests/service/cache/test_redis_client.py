"""The client of Redis: its circuit breaker, its deadline, and the limit on the size of a reply."""

import asyncio
import contextlib
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from taugate.service import replicas as fleet_module
from taugate.service.access.admission import tolerance
from taugate.service.redis_client import MAX_CACHED_BYTES, MAX_STATE_BYTES, CircuitBreaker, Deadline, RedisUnavailable
from taugate.service.replicas import Fleet, RedisCache, SharedRates

DOWN = ConnectionError("gone")


class Clock:
    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moved = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: moved.now)
    return moved


def fail(breaker: CircuitBreaker) -> bool:
    """Fail in an attempt; returns whether the breaker allowed it."""
    with pytest.raises(RedisUnavailable) as raised, breaker.attempt():
        raise DOWN
    return raised.value.tried


def seconds_until_failure(breaker: CircuitBreaker, clock: Clock) -> float:
    began = clock.now
    while not fail(breaker):
        clock.now += 0.125
    return clock.now - began


def succeed(breaker: CircuitBreaker) -> None:
    with breaker.attempt():
        pass


def test_pause_doubles_up_to_longest(clock: Clock) -> None:
    breaker = CircuitBreaker(lambda error: None, first_pause=0.5, longest_pause=2.0)
    fail(breaker)
    pauses = [seconds_until_failure(breaker, clock) for _ in range(4)]
    assert pauses == [0.5, 1.0, 2.0, 2.0]


def test_one_caller_tries_after_pause(clock: Clock) -> None:
    breaker = CircuitBreaker(lambda error: None)
    fail(breaker)
    clock.now += 0.5
    with breaker.attempt():
        assert not fail(breaker)
    with breaker.attempt():
        succeed(breaker)


def test_concurrent_failures_count_once(clock: Clock) -> None:
    breaker = CircuitBreaker(lambda error: None)
    with pytest.raises(RedisUnavailable), ExitStack() as attempts:
        for _ in range(20):
            attempts.enter_context(breaker.attempt())
        raise DOWN
    assert breaker.failures == 1
    assert seconds_until_failure(breaker, clock) == 0.5


def test_successful_write_confirms_nothing(clock: Clock) -> None:
    breaker = CircuitBreaker(lambda error: None)
    fail(breaker)
    clock.now += 0.5
    with breaker.attempt(confirms=False):
        pass
    assert not fail(breaker)


@pytest.mark.parametrize(("up", "told"), [(None, [None, DOWN, None]), (True, [DOWN, None])])
def test_only_changes_are_reported(up: bool | None, told: list[Exception | None], clock: Clock) -> None:
    changes: list[Exception | None] = []
    breaker = CircuitBreaker(changes.append, up=up)
    for _ in range(2):
        succeed(breaker)
    for _ in range(2):
        clock.now += 10
        fail(breaker)
    clock.now += 10
    for _ in range(2):
        succeed(breaker)
    assert changes == told


class Reply:
    """Replies of a Redis, each after some seconds on a clock that only they move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def after(self, deadline: Deadline, *seconds: float) -> float:
        """Return the deadline after these replies, of which those that are too slow are timeouts."""

        async def reply() -> None:
            for each in seconds:
                try:
                    async with deadline.limit():
                        self.now += each
                        if each >= deadline.seconds:
                            raise TimeoutError
                except TimeoutError:
                    pass

        asyncio.run(reply())
        return round(deadline.seconds, 6)


def test_deadline_is_three_times_median_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    redis = Reply(monkeypatch)
    deadline = Deadline(0.01)
    assert redis.after(deadline, *[0.001] * 9) == 0.01
    assert redis.after(deadline, *[0.008] * 33) == 0.024
    assert redis.after(deadline, *[0.023] * 33) == 0.05
    assert redis.after(deadline, *[0.0002] * 33) == 0.01


def test_deadline_grows_with_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis whose every reply takes 12 ms has never replied within 10."""
    assert Reply(monkeypatch).after(Deadline(0.01), *[0.012] * 9) == 0.036


def test_longer_setting_is_kept() -> None:
    deadline = Deadline(0.2)
    assert (deadline.seconds, deadline.longest) == (0.2, 0.2)


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
