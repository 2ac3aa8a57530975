"""Dynamic batching: what arrives while a batch is at work makes up the next one. Knows limits, not HTTP or models.

Nothing waits for company: an idle worker takes a lone item at once. One worker, because what it does uses every
processor already, and two batches at once would only take turns on them.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.errors import DeadlineExceeded, NotReady, Overloaded

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Waiting(Generic[Item, Result]):
    item: Item
    answer: asyncio.Future[Result]


class Batcher(Generic[Item, Result]):
    """Items in, results out, in batches.

    work: results of a batch, in its order, in the worker's thread; weigh: the weight of an item, there as well; most:
    the weight of a batch, unless a single item is heavier; limit: items waiting or at work; seconds: until an answer.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Result]],
        weigh: Callable[[Item], int],
        most: int,
        limit: int,
        seconds: float,
    ) -> None:
        self.depth = 0  # changed on the event loop alone
        self._work, self._weigh, self._most = work, weigh, most
        self._limit, self._seconds = limit, seconds
        self._queue: queue.SimpleQueue[_Waiting[Item, Result] | None] = queue.SimpleQueue()
        self._held: _Waiting[Item, Result] | None = None  # did not fit the last batch
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    async def submit(self, items: Sequence[Item]) -> list[Result]:
        """Results of the items, in order.

        Raises Overloaded at once when they would not fit the queue, DeadlineExceeded when they come too late; what
        passes its deadline, or is left by its caller, before its turn is never worked on.
        """
        if self.depth + len(items) > self._limit:
            raise Overloaded(f"{self.depth} queries are waiting (limit {self._limit}); try again later")
        self.depth += len(items)
        loop = asyncio.get_running_loop()
        waiting = [_Waiting[Item, Result](item, loop.create_future()) for item in items]
        for each in waiting:
            self._queue.put(each)
        try:
            async with asyncio.timeout(self._seconds):
                return [await each.answer for each in waiting]
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer within {self._seconds * 1000:.0f} ms") from error
        finally:
            for each in waiting:
                if not each.answer.cancel() and not each.answer.cancelled():
                    each.answer.exception()  # was raised for another of these: asyncio need not report it

    def close(self) -> None:
        """Wait for the batch at work; those that wait are told NotReady."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        left = [self._held] if self._held is not None else []
        while not self._queue.empty():
            left += filter(None, [self._queue.get()])
        for each in left:
            self._tell([each], NotReady("the service is shutting down"))

    def _run(self) -> None:
        while batch := self._next():
            outcome: Sequence[Result] | Exception
            try:
                outcome = self._work([each.item for each in batch])
            except Exception as error:  # noqa: BLE001 (it is raised where the results are waited for)
                outcome = error
            self._tell(batch, outcome)

    def _next(self) -> list[_Waiting[Item, Result]]:
        """What waits, up to the weight of a batch; waits for the first. Empty when there will be no more."""
        batch: list[_Waiting[Item, Result]] = []
        weight = 0
        while weight < self._most and not self._closed:
            try:
                waiting = self._held or self._queue.get(block=not batch)
            except queue.Empty:
                break
            self._held = None
            if waiting is None:
                break
            if waiting.answer.done():  # cancelled: nobody waits for it any more
                self._tell([waiting], ())
                continue
            try:
                weight += self._weigh(waiting.item)
            except Exception as error:  # noqa: BLE001 (it is raised where the result is waited for)
                self._tell([waiting], error)
                continue
            if batch and weight > self._most:
                self._held = waiting
                break
            batch.append(waiting)
        return [] if self._closed else batch

    def _tell(self, batch: Sequence[_Waiting[Item, Result]], outcome: Sequence[Result] | Exception) -> None:
        """One call into the event loop for a whole batch."""
        try:
            batch[0].answer.get_loop().call_soon_threadsafe(self._deliver, batch, outcome)
        except RuntimeError:  # the loop is closed, and with it whoever waited
            self._closed = True

    def _deliver(self, batch: Sequence[_Waiting[Item, Result]], outcome: Sequence[Result] | Exception) -> None:
        self.depth -= len(batch)
        for place, each in enumerate(batch):
            if each.answer.done():
                continue
            if isinstance(outcome, Exception):
                each.answer.set_exception(outcome)
            else:
                each.answer.set_result(outcome[place])
