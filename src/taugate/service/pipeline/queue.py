"""Where queries wait: to be let in, to be encoded, and to be searched. Calls no model and nobody else.

`Admission` lets in so many at once, `QueryQueue` hands them out in batches of one length, and `EncodedQueries` in
groups that are searched together. The worker threads that take them are in service/pipeline/search.py.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial

from taugate.retrieval.documents.store import Document
from taugate.retrieval.encoder.encoder import Tokens
from taugate.retrieval.query import Answer, Query
from taugate.retrieval.vectors.similarity import Float32
from taugate.service.errors import DeadlineExceeded, NotReady, Overloaded
from taugate.service.runtime.traces import Trace


class Admission:
    """Limits how many queries are in hand at once, and how long each may take. Belongs to one event loop."""

    def __init__(self, max_queries: int, deadline_seconds: float, observe_depth: Callable[[int], object]) -> None:
        """max_queries: waiting or at work; deadline_seconds: until the reply to each.

        observe_depth: is called with how many are in hand, whenever that changes.
        """
        self.depth = 0
        self._max_queries, self._deadline_seconds, self._observe_depth = max_queries, deadline_seconds, observe_depth

    @asynccontextmanager
    async def admitted(self, queries: int) -> AsyncIterator[None]:
        """Count so many queries as in hand inside the context, and cancel what is awaited there at the deadline.

        Raises:
            Overloaded: At once where they would be over the limit, DeadlineExceeded where they take too long.
        """
        if self.depth + queries > self._max_queries:
            raise Overloaded(f"{self.depth} queries are waiting (limit {self._max_queries}); try again later")
        self._change_depth(queries)
        try:
            async with asyncio.timeout(self._deadline_seconds):
                yield
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer within {self._deadline_seconds * 1000:.0f} ms") from error
        finally:
            self._change_depth(-queries)

    def _change_depth(self, queries: int) -> None:
        self.depth += queries
        self._observe_depth(self.depth)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to one query.

    Attributes:
        query: As the encoder read it.
        answer: What is kept of the top-K, and why.
        documents: Those that are kept, in the answer's order.
        vector: The query's, (d',) float32.
        random: (r,) float32, its similarities with random documents.
    """

    query: Query
    answer: Answer
    documents: list[Document]
    vector: Float32
    random: Float32


@dataclass(slots=True, eq=False)
class PendingQuery:
    """A query on its way through the pipeline.

    Attributes:
        result: The future that the caller awaits, of the caller's event loop.
        vector: (d',) float32, None until the query is encoded.
        trace: Of its request, None where that is not traced.
        tokens: None until the query is tokenized, and where its vector was known from the start.
    """

    query: Query
    result: asyncio.Future[SearchResult]
    vector: Float32 | None = None
    trace: Trace | None = None
    tokens: Tokens | None = None


def deliver(queries: Sequence[PendingQuery], results: Sequence[SearchResult]) -> None:
    """Set the results of queries, in their order, from any thread; a query whose caller has left needs none."""
    _call_event_loop(queries, partial(_set_results, queries, results))


def fail(queries: Sequence[PendingQuery], error: Exception) -> None:
    """Raise an error where the results of these queries are awaited; from any thread."""
    _call_event_loop(queries, partial(_set_exception, queries, error))


@contextmanager
def failing(queries: Sequence[PendingQuery]) -> Iterator[None]:
    """Raise what is raised inside the context where the results of these queries are awaited, and nowhere else."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (whatever it is, the callers are to see it, and the thread goes on)
        fail(queries, error)


class QueryQueue:
    """Queries that wait to be encoded, in groups of one length: a batch of one length needs no padding.

    The event loop puts queries in. A worker thread takes the new ones from `arrivals`, adds each to the group of its
    length, and takes a batch; one worker does so at a time. Nothing waits for company: a lone query is a batch. Groups
    take turns, so that none waits for ever behind a large one.
    """

    def __init__(self, max_tokens: int) -> None:
        """max_tokens: in a batch, unless a single query has more."""
        self._max_tokens = max_tokens
        self._arrived: queue.SimpleQueue[PendingQuery | None] = queue.SimpleQueue()  # so that `put` never blocks
        self._groups: dict[int | None, deque[PendingQuery]] = {}  # the one whose turn it is first
        self.closed = False

    @property
    def has_more(self) -> bool:
        """True while queries wait in groups."""
        return bool(self._groups)

    def put(self, pending: PendingQuery) -> None:
        """Add a query at the end; where the queue is closed, or is being closed, it fails with NotReady."""
        self._arrived.put(pending)
        if self.closed:  # looked at afterwards: whoever closes may have emptied the queue by now
            fail([pending], shutting_down())

    def arrivals(self) -> Iterator[PendingQuery]:
        """Yield the queries that were put in since; wait for the first where no group has any; stop when closed.

        Queries whose caller has left are left out.
        """
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
                yield pending

    def add(self, pending: PendingQuery, length: int | None) -> None:
        """Add a query to its group.

        Args:
            length: In tokens as they are encoded, None where its vector is known already.
        """
        self._groups.setdefault(length, deque()).append(pending)

    def take_batch(self) -> list[PendingQuery]:
        """Take the longest waiting queries of the group whose turn it is; none whose caller has left. May be empty."""
        batch: list[PendingQuery] = []
        if not self._groups or self.closed:
            return batch
        length = next(iter(self._groups))
        group = self._groups.pop(length)
        tokens = 0
        while group and (not batch or tokens + (length or 0) <= self._max_tokens):
            pending = group.popleft()
            if not pending.result.done():  # else cancelled
                batch.append(pending)
                tokens += length or 0
        if group:  # behind the others
            self._groups[length] = group
        return batch

    def close(self) -> None:
        """Hand out nothing more, and wake the worker that waits."""
        self.closed = True
        self._arrived.put(None)

    def fail_remaining(self) -> None:
        """Fail the queries that still wait with NotReady, once no worker takes any more."""
        remaining = [pending for group in self._groups.values() for pending in group]
        while not self._arrived.empty():
            remaining += filter(None, [self._arrived.get()])
        fail(remaining, shutting_down())


class EncodedQueries:
    """Queries that wait to be searched: added by any thread, searched by one thread at a time."""

    def __init__(self, max_queries: int) -> None:
        """max_queries: searched together."""
        self._max_queries = max_queries
        self._waiting: deque[PendingQuery] = deque()
        self._draining = threading.Lock()

    def drain(self, queries: Sequence[PendingQuery]) -> Iterator[list[PendingQuery]]:
        """Add queries, and yield groups until none waits, with what other threads add meanwhile.

        Yields nothing while another thread is draining, which takes these as well.
        """
        self._waiting.extend(queries)
        # Looked at again after the lock is released: what was added meanwhile found it taken.
        while self._waiting and self._draining.acquire(blocking=False):
            try:
                group = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._max_queries))]
                if group:
                    yield group
            finally:
                self._draining.release()


def shutting_down() -> NotReady:
    """Return the error for what comes after the service was told to stop."""
    return NotReady("the service is shutting down")


def _call_event_loop(queries: Sequence[PendingQuery], callback: Callable[[], None]) -> None:
    """Have the callers' event loop make one call for all of these queries, as each call wakes it."""
    try:
        if queries:
            queries[0].result.get_loop().call_soon_threadsafe(callback)
    except RuntimeError:  # the loop is closed, and with it whoever waited
        pass


def _set_results(queries: Sequence[PendingQuery], results: Sequence[SearchResult]) -> None:
    for pending, result in zip(queries, results, strict=True):
        if not pending.result.done():
            pending.result.set_result(result)


def _set_exception(queries: Sequence[PendingQuery], error: Exception) -> None:
    for pending in queries:
        if not pending.result.done():
            pending.result.set_exception(error)
