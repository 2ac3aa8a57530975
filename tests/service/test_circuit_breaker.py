"""The circuit breaker of Redis, on a clock that the test moves."""

import asyncio
import time
from contextlib import ExitStack

import pytest

from taugate.service.redis_client import CircuitBreaker, Deadline, RedisUnavailable

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
