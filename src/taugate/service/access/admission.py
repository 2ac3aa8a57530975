"""Admission: how many queries the service takes on, of each key and in all. It refuses others at once, with 429.

Rate limits in queries per second and key, by GCRA; shared by all replicas if there is a Redis. GCRA keeps one number
per key: the time until which its queries are paid for. A query passes while that time is at most `tolerance` ahead of
now, and then moves it forward by 1/rate. So a key that has been quiet may send one second's worth of queries at once,
or one query if the rate is below 1. A batch passes if a single query would, and all its queries are charged: no batch
is too large to pass, later requests wait for it, and the long-run mean is the rate. Source: ATM Forum, Traffic
Management Specification 4.0, "Generic Cell Rate Algorithm", virtual scheduling.

A refusal costs a fraction of a reply, so that a service with too much traffic still replies at its full rate.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from taugate.service.access.authorization import ApiKey
from taugate.service.errors import DeadlineExceeded, Overloaded, RateLimited
from taugate.service.settings import Settings

if TYPE_CHECKING:  # loads redis-py, which a service without Redis does not need
    from taugate.service.replicas import SharedRates


_BURST_SECONDS = 1.0
_ROUNDING_SECONDS = 5e-6  # rounding error of sums of Unix times

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


def tolerance(rate: float) -> float:
    """Return how many seconds a key may be ahead of its rate, in queries per second."""
    return max(0.0, _BURST_SECONDS - 1 / rate) + _ROUNDING_SECONDS


class LocalRates:
    """Rate limits within one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with no query charged; `clock` is monotonic, in seconds."""
        self._clock = clock
        self._paid_until: dict[str, float] = {}  # by key name; bounded by the number of configured keys

    def spend(self, name: str, rate: float, queries: int) -> float:
        """Charge queries to a key with a rate in queries per second."""
        # Returns 0.0 if they may pass; else nothing is charged, and the seconds to wait are returned.
        now = self._clock()
        paid_until = max(self._paid_until.get(name, now), now)
        wait = paid_until - now - tolerance(rate)
        if wait > 0:
            return wait
        self._paid_until[name] = paid_until + queries / rate
        return 0.0


_WITHOUT_KEY = ""  # stands for the name of the key if none are configured: all callers share one rate


class RateLimiter:
    """Charges requests to the rate of their key. Connects to Redis at the first request of a key with a rate."""

    def __init__(self, settings: Settings) -> None:
        """Read the default rate (`queries_per_second`, 0 for no limit) and where rates are shared (`redis_url`)."""
        self._default_rate = settings.access.queries_per_second
        self._redis_url, self._timeout = settings.cache.redis_url, settings.cache.redis_timeout_ms / 1000
        self._local = LocalRates()
        self._shared: SharedRates | None = None

    async def charge(self, key: ApiKey | None, queries: int = 1) -> None:
        """Charge a request with so many queries, 0 to see whether one would pass; `key` is None if it needed none."""
        wait = None
        if self._redis_url is not None and self.is_shared(key):
            if self._shared is None:
                from taugate.service.replicas import SharedRates

                self._shared = SharedRates(self._redis_url.get_secret_value(), self._timeout)
            rate = self._rate(key)
            wait = await self._shared.spend(_name(key), rate, queries, tolerance(rate))
        if wait is None:
            self.charge_here(key, queries)
        elif wait > 0:
            raise self._over(key, wait)

    def is_shared(self, key: ApiKey | None) -> bool:
        """Return whether charging a key asks Redis."""
        return self._redis_url is not None and self._rate(key) > 0

    def charge_here(self, key: ApiKey | None, queries: int = 1) -> None:
        """Do the same as `charge`, within this process."""
        rate = self._rate(key)
        if rate and (wait := self._local.spend(_name(key), rate, queries)) > 0:
            raise self._over(key, wait)

    def _rate(self, key: ApiKey | None) -> float:
        own = None if key is None else key.queries_per_second
        return self._default_rate if own is None else own

    def _over(self, key: ApiKey | None, wait: float) -> RateLimited:
        limited = "all clients together" if key is None else f"the key {key.name}"
        message = f"{limited} may send {self._rate(key):g} queries per second; Retry-After says when to try again"
        return RateLimited(message, wait)

    async def close(self) -> None:
        """Close the connections to Redis, if there are any."""
        if self._shared is not None:
            await self._shared.close()


def _name(key: ApiKey | None) -> str:
    return _WITHOUT_KEY if key is None else key.name


class Admission:
    """Counts what is in progress, and raises Overloaded for what would exceed a limit. Belongs to one event loop."""

    def __init__(self, settings: Settings, observe_depth: Callable[[int], object]) -> None:
        """Set the limits; `observe_depth` is called with the depth whenever it changes."""
        limits, requests = settings.admission, settings.requests
        self.rates = RateLimiter(settings)  # charges requests to the rates of their keys
        self.depth = 0  # queries waiting or in progress
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
        """Count queries as in progress inside the context, and cancel what is awaited there at the deadline."""
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
        """Count an explanation as in progress inside the context."""
        if self._explanations >= _MAX_EXPLANATIONS:
            raise Overloaded(f"{_MAX_EXPLANATIONS} explanations are in progress; try again later")
        self._explanations += 1
        try:
            yield
        finally:
            self._explanations -= 1

    @contextmanager
    def body(self, key: str | None, *, batch: bool) -> Iterator[Callable[[int], None]]:
        """Count a request's body as in memory inside the context, and its batch as in progress."""
        # Yields a function that counts bytes as they are received; it raises Overloaded if too many are in
        # memory.
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
