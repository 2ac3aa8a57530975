"""The circuit breaker of Redis, on a clock that the test moves."""

import time

import pytest

from taugate.service.redis_client import CircuitBreaker

DOWN = ConnectionError("gone")


class Clock:
    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moved = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: moved.now)
    return moved


def fail(breaker: CircuitBreaker) -> None:
    assert breaker.allows()
    breaker.failed(DOWN, breaker.failures)


def seconds_until_allowed(breaker: CircuitBreaker, clock: Clock) -> float:
    began = clock.now
    while not breaker.allows():
        clock.now += 0.125
    return clock.now - began


def test_pause_doubles_up_to_longest(clock: Clock) -> None:
    breaker = CircuitBreaker(lambda error: None, first_pause=0.5, longest_pause=2.0)
    pauses = []
    fail(breaker)
    for _ in range(4):
        pauses.append(seconds_until_allowed(breaker, clock))
        breaker.failed(DOWN, breaker.failures)
    assert pauses == [0.5, 1.0, 2.0, 2.0]


def test_one_caller_tries_after_pause(clock: Clock) -> None:
    breaker = CircuitBreaker(lambda error: None)
    assert [breaker.allows() for _ in range(3)] == [True] * 3
    fail(breaker)
    clock.now += 0.5
    assert [breaker.allows() for _ in range(3)] == [True, False, False]
    breaker.succeeded()
    assert [breaker.allows() for _ in range(3)] == [True] * 3


def test_concurrent_failures_count_once(clock: Clock) -> None:
    breaker = CircuitBreaker(lambda error: None)
    for _ in range(20):
        breaker.failed(DOWN, 0)
    assert breaker.failures == 1
    assert seconds_until_allowed(breaker, clock) == 0.5


@pytest.mark.parametrize(("up", "told"), [(None, [None, DOWN, None]), (True, [DOWN, None])])
def test_only_changes_are_reported(up: bool | None, told: list[Exception | None], clock: Clock) -> None:
    changes: list[Exception | None] = []
    breaker = CircuitBreaker(changes.append, up=up)
    for _ in range(2):
        breaker.succeeded()
    for _ in range(2):
        clock.now += 10
        fail(breaker)
    for _ in range(2):
        breaker.succeeded()
    assert changes == told
