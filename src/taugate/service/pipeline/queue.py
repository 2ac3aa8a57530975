"""Queues of queries that wait to be encoded and searched. Calls no model.

`QueryQueue` hands queries out in batches for the encoder, and `SearchQueue` in groups that are searched together.
The threads that take them are in service/pipeline/search.py. How many may wait, service/access/admission.py decides.
"""

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from taugate.policy.arrays import Float32
from taugate.retrieval.encoder.encoder import Tokens
from taugate.retrieval.query import Answer, Query
from taugate.service.errors import NotReady
from taugate.service.pipeline.record import SearchRecord
from taugate.service.runtime.logs import Trace, current_trace

# Makes the record of a query from the query as the encoder read it, its vector, its answer, and its similarities to
# random documents, (r,) float32; called in the thread that has searched.
Write = Callable[[Query, Float32, Answer, Float32], SearchRecord]


@dataclass(frozen=True, slots=True, eq=False)
class QueuedQuery:
    """A query on its way through the pipeline. Made in the event loop of its caller."""

    query: Query  # the query; in a queue of encoded ones, as the encoder reads it
    vector: Float32 | None  # (d',) float32, None until the query is encoded
    write: Write
    result: asyncio.Future[SearchRecord] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    trace: Trace | None = field(default_factory=current_trace.get)
    tokens: Tokens | None = None  # None until the query is tokenized, and if the vector was cached
    arrived: float = field(default_factory=time.monotonic)  # time of `time.monotonic` at which it was made


def deliver(queries: Sequence[QueuedQuery], records: Sequence[SearchRecord]) -> None:
    """Return the records of queries, in order, to their callers, from any thread; skips those whose caller has left."""
    _finish(
        queries, [partial(queued.result.set_result, record) for queued, record in zip(queries, records, strict=True)]
    )


def fail(queries: Sequence[QueuedQuery], error: Exception) -> None:
    """Raise an error in the callers that await these queries; from any thread."""
    _finish(queries, [partial(queued.result.set_exception, error) for queued in queries])


def _finish(queries: Sequence[QueuedQuery], calls: Sequence[Callable[[], None]]) -> None:
    """Make one call in the callers' event loop for all of these queries, because each call wakes it."""

    def finish() -> None:
        for queued, call in zip(queries, calls, strict=True):
            if not queued.result.done():
                call()

    try:
        if queries:
            queries[0].result.get_loop().call_soon_threadsafe(finish)
    except RuntimeError:  # the loop is closed, so no caller waits
        pass


@contextmanager
def failing(queries: Sequence[QueuedQuery]) -> Iterator[None]:
    """Pass exceptions raised inside the context to the callers that await these queries, and to no one else."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (every error belongs to the callers; the thread must continue)
        fail(queries, error)


class QueryQueue:
    """Queries that wait to be encoded, in groups of one length for an encoder that would pad texts of several lengths.

    The event loop puts queries in; worker threads take batches, one at a time. A query never waits for others to
    fill a batch. Groups take turns, so that a small group is not starved by a large one. If texts of several
    lengths share a batch, a worker leaves to the others their share of the queries, so that none is idle while
    another one has a large batch; an encoder that pads would only get smaller batches of one length, which cost
    more per query.
    """

    def __init__(
        self,
        max_tokens: int,
        workers: int,
        tokenize: Callable[[QueuedQuery], tuple[QueuedQuery, int | None]],
        *,
        packed: bool,
    ) -> None:
        """Make an empty queue, from which `workers` threads take batches of `max_tokens`, or a longer query alone.

        `tokenize` returns a query with its tokens, and how many are encoded, None if its vector was cached. A `packed`
        batch may have texts of several lengths; it then has at most ⌈waiting queries / workers⌉.
        """
        self._max_tokens, self._workers, self._tokenize, self._packed = max_tokens, workers, tokenize, packed
        self._arrived: queue.SimpleQueue[QueuedQuery | None] = queue.SimpleQueue()  # so that `put` never blocks
        # Queries and their tokens, by length, or in one group if packed; None if their vectors were cached. The group
        # whose turn it is comes first.
        self._groups: dict[int | None, deque[tuple[QueuedQuery, int]]] = {}
        self._taking = threading.Lock()
        self.closed = False

    @property
    def has_more(self) -> bool:
        """True while queries wait in groups."""
        return bool(self._groups)

    def put(self, pending: QueuedQuery) -> None:
        """Add a query at the end; if the queue is closed or closing, the query fails with NotReady."""
        self._arrived.put(pending)
        if self.closed:  # checked after `put`, because `fail_remaining` may already have emptied the queue
            fail([pending], shutting_down())

    def next_batch(self) -> list[QueuedQuery]:
        """Tokenize the queries that have arrived, and take a batch; waits if there is none. Empty when closed."""
        # Queries whose caller has left are skipped.
        batch: list[QueuedQuery] = []
        with self._taking:
            while not (batch or self.closed):
                self._group_arrivals()
                batch = self._take_group()
        return batch

    def close(self) -> None:
        """Stop handing out queries, and wake the waiting worker."""
        self.closed = True
        self._arrived.put(None)

    def fail_remaining(self) -> None:
        """Fail the remaining queries with NotReady, once all workers have stopped."""
        remaining = [pending for group in self._groups.values() for pending, _ in group]
        while not self._arrived.empty():
            remaining += filter(None, [self._arrived.get()])
        fail(remaining, shutting_down())

    def _group_arrivals(self) -> None:
        """Add new queries to their groups; wait for the first if no group has any."""
        wait = not self._groups
        while not self.closed:
            try:
                pending = self._arrived.get(block=wait)
            except queue.Empty:
                return
            if pending is None:
                return
            wait = False
            if not pending.result.done():
                with failing([pending]):
                    tokenized, length = self._tokenize(pending)
                    key = 0 if self._packed and length is not None else length
                    self._groups.setdefault(key, deque()).append((tokenized, length or 0))

    def _take_group(self) -> list[QueuedQuery]:
        """Take the oldest queries of the group whose turn it is. May be empty."""
        batch: list[QueuedQuery] = []
        if not self._groups or self.closed:
            return batch
        waiting = sum(map(len, self._groups.values()))
        share = -(-waiting // self._workers) if self._packed else waiting
        key = next(iter(self._groups))
        group = self._groups.pop(key)
        tokens = 0
        while group and len(batch) < share and (not batch or tokens + group[0][1] <= self._max_tokens):
            pending, length = group.popleft()
            if not pending.result.done():  # not cancelled
                batch.append(pending)
                tokens += length
        if group:  # to the end of the queue of groups
            self._groups[key] = group
        return batch


class SearchQueue:
    """Queries that wait to be searched: added by any thread, searched by one thread at a time."""

    def __init__(self, max_queries: int) -> None:
        """Limit groups to `max_queries`."""
        self._max_queries = max_queries
        self._waiting: deque[QueuedQuery] = deque()
        self._draining = threading.Lock()

    def drain(self, queries: Sequence[QueuedQuery]) -> Iterator[list[QueuedQuery]]:
        """Add queries, and yield groups until none waits, including queries that other threads add meanwhile."""
        # Yields nothing while another thread is draining, which takes these queries as well.
        self._waiting.extend(queries)
        # Checked again after the lock is released: a thread that added queries in between found it locked.
        while self._waiting and self._draining.acquire(blocking=False):
            try:
                group = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._max_queries))]
                if group:
                    yield group
            finally:
                self._draining.release()


def shutting_down() -> NotReady:
    """Return the error for queries after the service began to stop."""
    return NotReady("the service is shutting down")
