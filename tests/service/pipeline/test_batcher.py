"""What arrives while a batch is at work makes up the next; nothing waits without need, and nothing is lost."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from taugate.service.errors import NotReady
from taugate.service.pipeline.batcher import Batcher, Job, tell

PATIENCE = 10


class Worker:
    """Squares numbers behind a gate, and remembers the batches. A number's thousands are its group, the rest weigh."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.batches: list[list[int]] = []
        self.alone: list[bool] = []
        self.error: Exception | None = None

    def work(self, jobs: Sequence[Job[int, int]], alone: bool) -> None:
        numbers = [job.item for job in jobs]
        self.batches.append(numbers)
        self.alone.append(alone)
        self.entered.release()
        assert self.gate.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        tell(jobs, [number**2 for number in numbers])

    @staticmethod
    def sort(number: int) -> tuple[int, int]:
        if number < 0:
            raise ValueError("has no weight")
        return number // 1000, number % 1000

    async def busy(self, batches: int = 1) -> None:
        for _ in range(batches):
            assert await asyncio.to_thread(self.entered.acquire, timeout=PATIENCE)


Scenario = Callable[[Worker, Batcher[int, int]], Awaitable[None]]


async def submit(batcher: Batcher[int, int], numbers: Sequence[int]) -> list[int]:
    return await asyncio.gather(*(batcher.submit(number) for number in numbers))


def run(scenario: Scenario, most: int = 100, workers: int = 1) -> Worker:
    worker = Worker()

    async def body() -> None:
        batcher = Batcher[int, int](worker.work, worker.sort, most, workers)
        try:
            await scenario(worker, batcher)
        finally:
            worker.gate.set()
            await asyncio.to_thread(batcher.close)

    asyncio.run(asyncio.wait_for(body(), 3 * PATIENCE))
    return worker


def test_what_arrives_meanwhile_is_answered_together() -> None:
    async def scenario(worker: Worker, batcher: Batcher[int, int]) -> None:
        first = asyncio.create_task(submit(batcher, [1]))
        await worker.busy()
        others = [asyncio.create_task(submit(batcher, [n, n + 1])) for n in (2, 4, 6)]
        await asyncio.sleep(0)
        worker.gate.set()
        assert await first == [1]
        assert [await each for each in others] == [[4, 9], [16, 25], [36, 49]]

    assert run(scenario).batches == [[1], [2, 3, 4, 5, 6, 7]]


def test_a_batch_is_capped_by_weight_and_keeps_the_order() -> None:
    async def scenario(worker: Worker, batcher: Batcher[int, int]) -> None:
        first = asyncio.create_task(submit(batcher, [1]))
        await worker.busy()
        second = asyncio.create_task(submit(batcher, [4, 4, 4, 30, 2, 9, 1]))
        await asyncio.sleep(0)
        worker.gate.set()
        assert await second == [16, 16, 16, 900, 4, 81, 1]
        await first

    assert run(scenario, most=10).batches == [[1], [4, 4], [4], [30], [2], [9, 1]], "30 is over the cap by itself"


def test_an_idle_worker_takes_one_at_once() -> None:
    async def scenario(worker: Worker, batcher: Batcher[int, int]) -> None:
        worker.gate.set()
        for number in range(5):
            assert await submit(batcher, [number]) == [number**2]

    assert run(scenario).batches == [[0], [1], [2], [3], [4]]


def test_who_left_is_never_worked_on() -> None:
    async def scenario(worker: Worker, batcher: Batcher[int, int]) -> None:
        first = asyncio.create_task(submit(batcher, [1]))
        await worker.busy()
        left = asyncio.create_task(submit(batcher, [2, 3]))
        await asyncio.sleep(0)
        left.cancel()
        last = asyncio.create_task(submit(batcher, [4]))
        await asyncio.sleep(0)
        worker.gate.set()
        assert [await first, await last] == [[1], [16]]
        assert left.cancelled()

    assert run(scenario).batches == [[1], [4]]


def test_one_group_a_batch_in_the_order_of_the_first_who_waits() -> None:
    async def scenario(worker: Worker, batcher: Batcher[int, int]) -> None:
        first = asyncio.create_task(submit(batcher, [1]))
        await worker.busy()
        others = asyncio.create_task(submit(batcher, [2001, 3001, 2002, 1001, 3002, 2003]))
        await asyncio.sleep(0)
        worker.gate.set()
        assert await others == [n**2 for n in (2001, 3001, 2002, 1001, 3002, 2003)]
        await first

    assert run(scenario).batches == [[1], [2001, 2002, 2003], [3001, 3002], [1001]]


def test_no_group_waits_for_ever_behind_a_large_one() -> None:
    async def scenario(worker: Worker, batcher: Batcher[int, int]) -> None:
        first = asyncio.create_task(submit(batcher, [1]))
        await worker.busy()
        others = asyncio.create_task(submit(batcher, [2008, 2008, 2008, 3001]))
        await asyncio.sleep(0)
        worker.gate.set()
        await others
        await first

    assert run(scenario, most=10).batches == [[1], [2008], [3001], [2008], [2008]]


def test_workers_take_a_batch_each_and_know_whether_there_is_more() -> None:
    async def scenario(worker: Worker, batcher: Batcher[int, int]) -> None:
        first = asyncio.create_task(submit(batcher, [1]))
        await worker.busy()
        second = asyncio.create_task(submit(batcher, [2]))
        await worker.busy()
        third = asyncio.create_task(submit(batcher, [3]))
        await asyncio.sleep(0)
        worker.gate.set()
        assert [await each for each in (first, second, third)] == [[1], [4], [9]]
        while batcher._at_work:  # they tell their results a moment before they are idle
            await asyncio.sleep(0)
        assert await submit(batcher, [4]) == [16]
        assert await submit(batcher, [5, 1001]) == [25, 1001**2]

    worker = run(scenario, workers=2)
    assert worker.batches[:3] == [[1], [2], [3]]
    assert worker.alone[:2] == [True, False]
    assert worker.alone[3], "all were idle when the fourth came"


def test_an_error_reaches_those_of_its_batch_and_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(worker: Worker, batcher: Batcher[int, int]) -> None:
        worker.error = RuntimeError("broken")
        both = [asyncio.create_task(submit(batcher, [n, n])) for n in (1, 2)]
        worker.gate.set()
        for each in both:
            with pytest.raises(RuntimeError, match="broken"):
                await each
        worker.error = None
        assert await submit(batcher, [3]) == [9]

    run(scenario)
    assert "never retrieved" not in caplog.text


def test_what_cannot_be_weighed_fails_alone() -> None:
    async def scenario(worker: Worker, batcher: Batcher[int, int]) -> None:
        worker.gate.set()
        with pytest.raises(ValueError, match="no weight"):
            await submit(batcher, [-1])
        assert await submit(batcher, [2]) == [4]

    run(scenario)


def test_closing_waits_for_the_batch_at_work_and_tells_those_that_wait() -> None:
    async def scenario(worker: Worker, batcher: Batcher[int, int]) -> None:
        first, waiting = asyncio.create_task(submit(batcher, [1])), asyncio.create_task(submit(batcher, [2]))
        await worker.busy()
        closing = asyncio.create_task(asyncio.to_thread(batcher.close))
        await asyncio.sleep(0.05)
        assert not closing.done()
        worker.gate.set()
        await closing
        assert await first == [1]
        with pytest.raises(NotReady, match="shutting down"):
            await waiting

    assert run(scenario, most=1).batches == [[1]]


def test_who_comes_after_it_was_closed_is_told_so() -> None:
    async def scenario(worker: Worker, batcher: Batcher[int, int]) -> None:
        await asyncio.to_thread(batcher.close)
        with pytest.raises(NotReady, match="shutting down"):
            await asyncio.wait_for(batcher.submit(1), PATIENCE)

    assert run(scenario).batches == []
