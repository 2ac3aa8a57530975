"""The circuit breaker of Redis, on a clock that the test moves."""

import time
from contextlib import ExitStack

import pytest

from taugate.service.redis_client import CircuitBreaker, RedisUnavailable

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
