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

from taugate.service.errors import NotReady

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class Job(Generic[Item, Result]):
    """An item, and where its result is waited for."""

    item: Item
    answer: asyncio.Future[Result]
    weight: int = 0


class Batcher(Generic[Item, Result]):
    """Items in, results out, in batches.

    work: is given a batch in a worker's thread, and whether it is all there is to do, and sees to it that each job is
    told its outcome (`tell`), unless it raises; sort: group and weight of an item, in such a thread as well; most: the
    weight of a batch, unless a single item is heavier; workers: threads; prepare: is called in each of them first.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Job[Item, Result]], bool], None],
        sort: Callable[[Item], tuple[Hashable, int]],
        most: int,
        workers: int = 1,
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        self._work, self._sort, self._most, self._prepare = work, sort, most, prepare
        self._queue: queue.SimpleQueue[Job[Item, Result] | None] = queue.SimpleQueue()
        self._taking = threading.Lock()  # of what follows: one worker at a time takes a batch
        self._groups: dict[Hashable, deque[Job[Item, Result]]] = {}  # the one whose turn it is first
        self._at_work: set[int] = set()  # threads
        self._closed = False
        self._threads = [threading.Thread(target=self._run, name="batcher", daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    async def submit(self, item: Item) -> Result:
        """The result of an item. What its caller leaves before its turn is never worked on.

        Raises NotReady when it is closed before the item had its turn, or was already.
        """
        job = Job[Item, Result](item, asyncio.get_running_loop().create_future())
        self._queue.put(job)
        if self._closed:  # looked at afterwards: whoever closes may have emptied the queue by now
            tell([job], _closing())
        return await job.answer

    def close(self) -> None:
        """Wait for the batches at work; those that wait are told NotReady."""
        self._closed = True
        self._queue.put(None)
        for thread in self._threads:
            thread.join()
        left = [job for group in self._groups.values() for job in group]
        while not self._queue.empty():
            left += filter(None, [self._queue.get()])
        tell(left, _closing())

    def _run(self) -> None:
        self._prepare()
        while True:
            with self._taking:
                batch = self._next()
                alone = not (self._at_work or self._groups)
                self._at_work.add(threading.get_ident())
            if not batch:
                return
            try:
                self._work(batch, alone)
            except Exception as error:  # noqa: BLE001 (it is raised where the results are waited for)
                tell(batch, error)
            self._at_work.discard(threading.get_ident())

    def _next(self) -> list[Job[Item, Result]]:
        """The first of the group whose turn it is; waits for it. Empty when there will be no more."""
        batch: list[Job[Item, Result]] = []
        while not batch and not self._closed:
            self._sort_in(wait=not self._groups)
            if not self._groups or self._closed:
                continue
            name = next(iter(self._groups))
            group = self._groups.pop(name)
            weight = 0
            while group and (not batch or weight + group[0].weight <= self._most):
                job = group.popleft()
                if not job.answer.done():  # else cancelled: nobody waits for it any more
                    batch.append(job)
                    weight += job.weight
            if group:  # behind the others, so that no group waits for ever
                self._groups[name] = group
        return batch

    def _sort_in(self, *, wait: bool) -> None:
        """Put what has arrived into its groups; wait for the first."""
        while not self._closed:
            try:
                job = self._queue.get(block=wait)
            except queue.Empty:
                return
            if job is None:
                return
            wait = False
            if job.answer.done():
                continue
            try:
                group, job.weight = self._sort(job.item)
            except Exception as error:  # noqa: BLE001 (it is raised where the result is waited for)
                tell([job], error)
                continue
            self._groups.setdefault(group, deque()).append(job)


def _closing() -> NotReady:
    return NotReady("the service is shutting down")


def tell(jobs: Sequence[Job[Item, Result]], outcome: Sequence[Result] | Exception) -> None:
    """Results of jobs, in their order, or what was raised instead; one call into the event loop for all of them."""
    try:
        if jobs:
            jobs[0].answer.get_loop().call_soon_threadsafe(_deliver, jobs, outcome)
    except RuntimeError:  # the loop is closed, and with it whoever waited
        pass


def _deliver(jobs: Sequence[Job[Item, Result]], outcome: Sequence[Result] | Exception) -> None:
    for place, job in enumerate(jobs):
        if job.answer.done():
            continue
        if isinstance(outcome, Exception):
            job.answer.set_exception(outcome)
        else:
            job.answer.set_result(outcome[place])
