"""Concurrent equal work is done once, and stops if all callers leave."""

import asyncio

import pytest

from taugate.service.cache.cache import SingleFlight


class Work:
    """Work that waits for its gate; counts how often it began and was given up."""

    def __init__(self, error: Exception | None = None) -> None:
        self.gate = asyncio.Event()
        self.error = error
        self.begun = self.given_up = 0

    async def __call__(self) -> int:
        self.begun += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if self.error is not None:
            raise self.error
        return self.begun


async def joined(flights: SingleFlight[int], work: Work, count: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(flights.join("key", work)) for _ in range(count)]
    await asyncio.sleep(0.01)
    return tasks


def test_equal_keys_share_result() -> None:
    async def scenario() -> None:
        flights, work = SingleFlight[int](), Work()
        tasks = await joined(flights, work, 3)
        assert "key" in flights
        work.gate.set()
        assert await asyncio.gather(*tasks) == [1, 1, 1]
        assert "key" not in flights
        assert await flights.join("key", work) == 2

    asyncio.run(scenario())


def test_different_keys_run_separately() -> None:
    async def scenario() -> None:
        flights, work = SingleFlight[int](), Work()
        work.gate.set()
        assert sorted(await asyncio.gather(flights.join("a", work), flights.join("b", work))) == [1, 2]

    asyncio.run(scenario())


def test_cancelled_waiter_stops_nothing() -> None:
    async def scenario() -> None:
        flights, work = SingleFlight[int](), Work()
        first, second = await joined(flights, work, 2)
        second.cancel()
        await asyncio.sleep(0.01)
        assert work.given_up == 0
        work.gate.set()
        assert await first == 1

    asyncio.run(scenario())


def test_cancelled_leader_is_replaced() -> None:
    async def scenario() -> None:
        flights, work = SingleFlight[int](), Work()
        first, *rest = await joined(flights, work, 4)
        first.cancel()
        await asyncio.sleep(0.01)
        assert (work.begun, work.given_up) == (2, 1)
        work.gate.set()
        assert await asyncio.gather(*rest) == [2, 2, 2]
        assert "key" not in flights

    asyncio.run(scenario())


def test_work_ends_without_waiters() -> None:
    async def scenario() -> None:
        flights, work = SingleFlight[int](), Work()
        for task in await joined(flights, work, 2):
            task.cancel()
        await asyncio.sleep(0.01)
        assert work.given_up == work.begun
        assert "key" not in flights

    asyncio.run(scenario())


def test_exception_reaches_all_waiters() -> None:
    async def scenario() -> None:
        flights, work = SingleFlight[int](), Work(KeyError("broken"))
        tasks = await joined(flights, work, 2)
        work.gate.set()
        for task in tasks:
            with pytest.raises(KeyError, match="broken"):
                await task
        assert "key" not in flights

    asyncio.run(scenario())
