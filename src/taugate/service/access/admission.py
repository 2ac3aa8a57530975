"""Admission: how much the service takes on. It refuses everything else at once, with 429.

A refusal costs a fraction of a reply, so that a service with too much traffic still replies at its full rate.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from taugate.service.access.rate_limit import RateLimiter
from taugate.service.errors import DeadlineExceeded, Overloaded
from taugate.service.settings import Settings

# Number of bodies of the largest size that may be in memory at once, 64 MiB by default. A usual body has a hundred
# bytes; the limit is for thousands of clients that each send most of a large one.
_MAX_LARGE_BODIES = 64
# The same per key, so that it takes eight keys to exhaust the limit for all.
_MAX_LARGE_BODIES_PER_KEY = 8
# The queue limit divided by this is the number of batches per key in progress, 8 by default: twice as many full ones as
# fit into the queue. A fully cached batch does not use the queue; it takes 1 ms of the event loop, or 18 ms if each
# reply has a hundred documents.
_QUERIES_PER_BATCH = 32
# Explanations in progress. Each takes as long as many searches, and must not take their places in the queue.
_MAX_EXPLANATIONS = 8


class Admission:
    """Counts what is in progress, and raises Overloaded for what would exceed a limit. Belongs to one event loop.

    Attributes:
        rates: Charges requests to the rates of their keys.
        depth: Queries waiting or in progress.
    """

    def __init__(self, settings: Settings, observe_depth: Callable[[int], object]) -> None:
        """Set the limits; `observe_depth` is called with the depth whenever it changes."""
        limits, requests = settings.admission, settings.requests
        self.rates = RateLimiter(settings)
        self.depth = 0
        self._max_queries, self._observe_depth = limits.queue_limit, observe_depth
        self._deadline_seconds = limits.deadline_ms / 1000
        self._explanations = 0
        self._max_batches = max(1, limits.queue_limit // _QUERIES_PER_BATCH)
        self._batches: Counter[str | None] = Counter()  # in progress, by key name; None for requests without a key
        largest = max(requests.max_body_bytes, requests.max_batch_bytes)
        self._max_bytes, self._max_bytes_per_key = _MAX_LARGE_BODIES * largest, _MAX_LARGE_BODIES_PER_KEY * largest
        self._bytes = 0  # of all bodies in memory
        self._bytes_per_key: Counter[str | None] = Counter()

    @property
    def is_full(self) -> bool:
        """True while no query may be added."""
        return self.depth >= self._max_queries

    def overloaded(self) -> Overloaded:
        """Return the error for a query that may not be added."""
        return Overloaded(f"{self.depth} queries are waiting (limit {self._max_queries}); try again later")

    @asynccontextmanager
    async def enqueue(self, queries: int) -> AsyncIterator[None]:
        """Count queries as in progress inside the context, and cancel what is awaited there at the deadline.

        Raises:
            Overloaded: At once if the queries would exceed the limit.
            DeadlineExceeded: If they take too long.
        """
        if self.depth + queries > self._max_queries:
            raise self.overloaded()
        self._change_depth(queries)
        try:
            async with asyncio.timeout(self._deadline_seconds):
                yield
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer within {self._deadline_seconds * 1000:.0f} ms") from error
        finally:
            self._change_depth(-queries)

    @contextmanager
    def explanation(self) -> Iterator[None]:
        """Count an explanation as in progress inside the context.

        Raises:
            Overloaded: If too many are.
        """
        if self._explanations >= _MAX_EXPLANATIONS:
            raise Overloaded(f"{_MAX_EXPLANATIONS} explanations are in progress; try again later")
        self._explanations += 1
        try:
            yield
        finally:
            self._explanations -= 1

    @contextmanager
    def body(self, key: str | None, *, batch: bool) -> Iterator[Callable[[int], None]]:
        """Count a request's body as in memory inside the context, and its batch as in progress.

        Yields a function that counts bytes as they are received; it raises Overloaded if too many are in memory.

        Args:
            key: Name of the request's key, None if it needed none.
            batch: Whether the request is a batch.

        Raises:
            Overloaded: If too many batches of the key are in progress.
        """
        if batch and self._batches[key] >= self._max_batches:
            raise Overloaded(f"this key has {self._max_batches} batches in progress; try again later")
        received = 0

        def count(size: int) -> None:
            nonlocal received
            received += size
            self._bytes += size
            self._bytes_per_key[key] += size
            if self._bytes > self._max_bytes:
                raise Overloaded("too many large bodies are being received; try again later")
            if key is not None and self._bytes_per_key[key] > self._max_bytes_per_key:
                raise Overloaded(f"too many large bodies of the key {key} are being received; try again later")

        self._batches[key] += batch
        try:
            yield count
        finally:
            self._batches[key] -= batch
            self._bytes -= received
            self._bytes_per_key[key] -= received

    def _change_depth(self, queries: int) -> None:
        self.depth += queries
        self._observe_depth(self.depth)
