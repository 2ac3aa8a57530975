"""Dynamic batching: what arrives while the workers are busy makes up their next batches. Knows no HTTP and no models.

Nothing waits for company: an idle worker takes a lone item at once. Only items of one group share a batch, so that
several workers have something to do and each result leaves as soon as its batch is done.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.errors import NotReady

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Waiting(Generic[Item, Result]):
    item: Item
    answer: asyncio.Future[Result]
    weight: int = 0


class Batcher(Generic[Item, Result]):
    """Items in, results out, in batches.

    work: results of a batch, in its order, in a worker's thread, which is told whether the batch is all there is to
    do; sort: group and weight of an item, in such a thread as well; most: the weight of a batch, unless a single item
    is heavier; workers: threads; prepare: is called in each of them first.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item], bool], Sequence[Result]],
        sort: Callable[[Item], tuple[Hashable, int]],
        most: int,
        workers: int = 1,
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        self._work, self._sort, self._most, self._prepare = work, sort, most, prepare
        self._queue: queue.SimpleQueue[_Waiting[Item, Result] | None] = queue.SimpleQueue()
        self._taking = threading.Lock()  # of what follows: one worker at a time takes a batch
        self._groups: dict[Hashable, deque[_Waiting[Item, Result]]] = {}  # the one whose turn it is first
        self._at_work: set[int] = set()  # threads
        self._closed = False
        self._threads = [threading.Thread(target=self._run, name="batcher", daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    async def submit(self, items: Sequence[Item]) -> list[Result]:
        """Results of the items, in order. What its caller leaves before its turn is never worked on."""
        loop = asyncio.get_running_loop()
        waiting = [_Waiting[Item, Result](item, loop.create_future()) for item in items]
        for each in waiting:
            self._queue.put(each)
        try:
            return [await each.answer for each in waiting]
        finally:
            for each in waiting:
                if not each.answer.cancel() and not each.answer.cancelled():
                    each.answer.exception()  # was raised for another of these: asyncio need not report it

    def close(self) -> None:
        """Wait for the batches at work; those that wait are told NotReady."""
        self._closed = True
        self._queue.put(None)
        for thread in self._threads:
            thread.join()
        left = [each for group in self._groups.values() for each in group]
        while not self._queue.empty():
            left += filter(None, [self._queue.get()])
        for each in left:
            self._tell([each], NotReady("the service is shutting down"))

    def _run(self) -> None:
        self._prepare()
        while True:
            with self._taking:
                batch = self._next()
                alone = not (self._at_work or self._groups)
                self._at_work.add(threading.get_ident())
            if not batch:
                return
            outcome: Sequence[Result] | Exception
            try:
                outcome = self._work([each.item for each in batch], alone)
            except Exception as error:  # noqa: BLE001 (it is raised where the results are waited for)
                outcome = error
            self._at_work.discard(threading.get_ident())
            self._tell(batch, outcome)

    def _next(self) -> list[_Waiting[Item, Result]]:
        """The first of the group whose turn it is; waits for it. Empty when there will be no more."""
        batch: list[_Waiting[Item, Result]] = []
        while not batch and not self._closed:
            self._sort_in(wait=not self._groups)
            if not self._groups or self._closed:
                continue
            name = next(iter(self._groups))
            group = self._groups.pop(name)
            weight = 0
            while group and (not batch or weight + group[0].weight <= self._most):
                each = group.popleft()
                if not each.answer.done():  # else cancelled: nobody waits for it any more
                    batch.append(each)
                    weight += each.weight
            if group:  # behind the others, so that no group waits for ever
                self._groups[name] = group
        return batch

    def _sort_in(self, *, wait: bool) -> None:
        """Put what has arrived into its groups; wait for the first."""
        while not self._closed:
            try:
                each = self._queue.get(block=wait)
            except queue.Empty:
                return
            if each is None:
                return
            wait = False
            if each.answer.done():
                continue
            try:
                group, each.weight = self._sort(each.item)
            except Exception as error:  # noqa: BLE001 (it is raised where the result is waited for)
                self._tell([each], error)
                continue
            self._groups.setdefault(group, deque()).append(each)

    def _tell(self, batch: Sequence[_Waiting[Item, Result]], outcome: Sequence[Result] | Exception) -> None:
        """One call into the event loop for a whole batch."""
        try:
            batch[0].answer.get_loop().call_soon_threadsafe(_deliver, batch, outcome)
        except RuntimeError:  # the loop is closed, and with it whoever waited
            self._closed = True


def _deliver(batch: Sequence[_Waiting[Item, Result]], outcome: Sequence[Result] | Exception) -> None:
    for place, each in enumerate(batch):
        if each.answer.done():
            continue
        if isinstance(outcome, Exception):
            each.answer.set_exception(outcome)
        else:
            each.answer.set_result(outcome[place])
