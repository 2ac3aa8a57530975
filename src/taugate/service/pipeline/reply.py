"""Replies to queries: cached in memory, shared with an equal query in flight, rebuilt from Redis, or searched for."""

import asyncio
import hashlib
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from taugate.policy.arrays import Float32
from taugate.retrieval.query import Answer, Explanation, Query
from taugate.service.access.admission import Admission
from taugate.service.metrics import Metrics
from taugate.service.pipeline.record import ReplyForm, SearchRecord, write_body
from taugate.service.settings import Settings

if TYPE_CHECKING:  # loads FAISS and redis-py, which not every service needs
    from taugate.retrieval.reader import Release
    from taugate.service.pipeline.search import SearchPipeline
    from taugate.service.replicas import CacheOutcome, RedisCache


# Version of the format of values; values that were written with another number are not read.
_SCHEMA = 5
# Memory that a key and its table entries take: 450 to 550 bytes, measured with tracemalloc in a full cache that evicts
# entries, on CPython 3.11 (tests/service/cache/test_cached_replies.py).
_ENTRY_BYTES = 512

# The square of a vector's length: queries have unit length, or 0 if a text has no token.
_MAX_SQUARED_LENGTH = 1.01
# Bits of the byte after a cached vector: how the encoder read the query.
_TRUNCATED_BIT, _UNREADABLE_BIT = 1, 2

_every_field = attrgetter(*(field.name for field in fields(Query)))  # so that a new field cannot be forgotten here


class CacheKeys:
    """Builds cache keys for a release and precision: `taugate:<schema>:<release>:<precision>:<kind>:<hash>`.

    A release never changes, so entries are evicted but never invalidated.
    """

    def __init__(self, release: "Release") -> None:
        self._prefix = f"taugate:{_SCHEMA}:{release.manifest.release_id}:{release.precision}"

    def vector(self, query: Query) -> str:
        """Return the key of a query's vector."""
        # Callers who may see different documents have different keys. Otherwise they could find out from
        # response times whether others have sent the same query.
        return self._key("vector", (query.text, query.permitted))

    def retrieved(self, query: Query, depth: int) -> str:
        """Return the key of the `depth` documents that a search retrieved, before the threshold was applied."""
        searched = query.text if query.vector is None else (query.text, query.vector)
        return self._key("found", (searched, depth, query.filter, query.permitted, query.group_by))

    def reply(self, query: Query, form: object) -> str:
        """Return the key of a whole reply; the `repr` of `form` must have all that changes the output."""
        return self._key("reply", (*_every_field(query), form))

    def _key(self, kind: str, parts: object) -> str:
        return f"{self._prefix}:{kind}:{hashlib.sha256(repr(parts).encode()).hexdigest()}"


def flagged_vector(query: Query, vector: Float32) -> bytes:
    """Return a query's vector, and a byte with a bit for each flag of how the encoder read it."""
    return vector.tobytes() + bytes([_TRUNCATED_BIT * query.truncated | _UNREADABLE_BIT * query.unreadable])


def read_vector(stored: object, query: Query, dimension: int) -> tuple[Query, Float32] | None:
    """Parse the bytes of `flagged_vector`; returns the query as the encoder read it, and its vector, (d',) float32."""
    # Returns None for a value that no query can have.
    if not isinstance(stored, bytes) or len(stored) != 4 * dimension + 1:
        return None
    flags = stored[-1]
    vector: Float32 = np.frombuffer(stored, dtype=np.float32, count=dimension)
    with np.errstate(over="ignore"):
        if flags > _TRUNCATED_BIT | _UNREADABLE_BIT or not np.dot(vector, vector) <= _MAX_SQUARED_LENGTH:  # or NaN
            return None
    if flags:
        query = replace(query, truncated=bool(flags & _TRUNCATED_BIT), unreadable=bool(flags & _UNREADABLE_BIT))
    return query, vector


def position_bytes(positions: NDArray[np.int64]) -> bytes:
    """Return positions of documents, (n,) int64, as bytes."""
    return positions.astype(np.int32).tobytes()


def read_positions(stored: bytes) -> NDArray[np.int64]:
    """Parse the bytes of `position_bytes`."""
    return np.frombuffer(stored, dtype=np.int32).astype(np.int64)


class MemoryCache(LRUCache[str, Any]):
    """The most recently used values, up to a number of bytes. Belongs to one event loop."""

    def __init__(self, max_bytes: int) -> None:
        """Limit the bytes of all entries, including keys and tables; 0 turns the cache off."""
        super().__init__(max_bytes, getsizeof=_size)

    def put(self, key: str, value: object) -> None:
        """Store a value, of which `sys.getsizeof` must return all the memory that it takes."""
        # The least recently used values are evicted. A value larger than the limit is not stored.
        if _size(value) <= self.maxsize:
            self[key] = value


def _size(value: object) -> int:
    return getsizeof(value) + _ENTRY_BYTES


Result = TypeVar("Result")


class SingleFlight(Generic[Result]):
    """Shares results among concurrent callers with the same key. Belongs to one event loop.

    Modelled on Go's golang.org/x/sync/singleflight.
    """

    def __init__(self) -> None:
        self._futures: dict[str, asyncio.Future[Result]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._futures

    async def join(self, key: str, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result of the call in progress under `key`, or call `work` if there is none."""
        # The first caller runs `work` itself, without a separate task. If that caller is cancelled, one of
        # the waiting callers runs its own `work`. An exception of `work` is raised in all callers.
        while (future := self._futures.get(key)) is not None:
            await asyncio.wait((future,))
            if not future.cancelled():
                return future.result()
        future = self._futures[key] = asyncio.get_running_loop().create_future()
        try:
            result = await work()
        except Exception as error:
            future.set_exception(error)
            future.exception()  # marks it as retrieved, because it is raised here; asyncio would warn otherwise
            raise
        except BaseException:
            future.cancel()
            raise
        else:
            future.set_result(result)
            return result
        finally:
            del self._futures[key]


class TieredCache:
    """A cache in memory for this process, and one in Redis for all replicas, if there is a Redis."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Make the caches according to the settings, without connecting yet."""
        self.memory = MemoryCache(settings.cache.max_bytes)
        self.shared: RedisCache | None = None
        if settings.cache.redis_url is None:
            metrics.redis_up.set(math.nan)  # neither up nor down, so that no alert fires
        else:
            from taugate.service import replicas

            url, timeout = settings.cache.redis_url.get_secret_value(), settings.cache.redis_timeout_ms / 1000
            self.shared = replicas.RedisCache(url, timeout, settings.cache.redis_ttl_seconds, metrics.redis_up.set)

    async def fetch(self, keys: Sequence[str]) -> "tuple[CacheOutcome, list[bytes | None]]":
        """Return the outcome of the lookup, and the shared value of each key, None if it is absent."""
        # Values are untrusted: validate them before use.
        if self.shared is None:
            return "miss" if self.memory.maxsize else "bypass", [None] * len(keys)
        return await self.shared.get(keys)

    def share(self, values: Mapping[str, bytes]) -> None:
        """Write values to Redis in the background, if there is one."""
        if self.shared is not None and values:
            self.shared.put(values)

    async def close(self) -> None:
        """Close the connections to Redis."""
        if self.shared is not None:
            await self.shared.close()


class CachedSearch:
    """Searches one release, through the caches. Belongs to one event loop."""

    def __init__(self, pipeline: "SearchPipeline", cache: TieredCache, admission: Admission, metrics: Metrics) -> None:
        """Search with a pipeline; cache, admission and metrics are those of the process, shared by its releases."""
        self.pipeline = pipeline
        self._cache, self._admission, self._metrics = cache, admission, metrics
        self._keys = CacheKeys(pipeline.release)
        self._in_flight: SingleFlight[SearchRecord] = SingleFlight()

    def key(self, query: Query, form: ReplyForm) -> str:
        """Return the key of a search whose reply has this form."""
        return self._keys.reply(query, form)

    def is_cached(self, key: str) -> bool:
        """Return whether `cached` has a record."""
        return key in self._cache.memory

    def cached(self, key: str) -> SearchRecord | None:
        """Return the record of a search if it is in this process's memory."""
        record: SearchRecord | None = self._cache.memory.get(key)
        if record is not None:
            self._metrics.observe_cache("hit")
        return record

    async def records(self, searches: Sequence[tuple[str, Query, ReplyForm]]) -> list[SearchRecord]:
        """Search for one or more queries that are not `cached`, each with its key and the form of its reply."""
        # Returns their records in order. Raises as SearchPipeline.search, too.
        async with self._admission.enqueue(len(searches)):
            if len(searches) == 1:  # without an asyncio task of its own
                return [await self._join(*searches[0])]
            return await asyncio.gather(*(self._join(*search) for search in searches))

    async def explain(self, query: Query, document_id: str) -> Explanation:
        """Explain what a search does with a document, under the same limits as a search."""
        # See retrieval.explanation for the arguments and errors; raises as `records`, too.
        with self._admission.explanation():
            async with self._admission.enqueue(1):
                return await self.pipeline.explain(query, document_id)

    async def _join(self, key: str, query: Query, form: ReplyForm) -> SearchRecord:
        """Join an equal query in flight, or start the work; the record is cached then."""
        if key in self._in_flight:
            self._metrics.observe_cache("hit")
        return await self._in_flight.join(key, lambda: self._search(key, query, form))

    async def _search(self, key: str, query: Query, form: ReplyForm) -> SearchRecord:
        """Rebuild a record from Redis, or search; then cache it under `key`."""
        memory, release = self._cache.memory, self.pipeline.release
        retriever, shared = release.retriever, dict[str, bytes]()
        positions_key, vector_key = self._keys.retrieved(query, retriever.depth(query)), self._keys.vector(query)

        def write(read: Query, vector: Float32, answer: Answer, random: Float32) -> SearchRecord:
            """Write the reply; keep a vector that was encoded, and the positions if a replica can use them."""
            if read.vector is None:
                shared[vector_key] = flagged_vector(read, vector)
            if answer.retrieved is not None and not retriever.passages.remote:
                shared[positions_key] = position_bytes(answer.retrieved)
            body = write_body(form, answer, answer.read(release.documents), release.manifest)
            return SearchRecord.of(read, answer, random, body)

        began = time.perf_counter()
        outcome, (positions, shared_vector) = await self._cache.fetch([positions_key, vector_key])
        if self._cache.shared:
            self._metrics.observe_stage("cache", began, time.perf_counter())
        local: bytes | None = memory.get(vector_key)
        sent = None if query.vector is None else (query, retriever.own_vector(query.vector))
        encoded = sent or read_vector(shared_vector if local is None else local, query, retriever.index.dimension)
        record = None
        if positions is not None and encoded is not None and retriever.rescores(query):
            try:
                record = self.pipeline.rescore(*encoded, read_positions(positions), write)
            except ValueError:  # other clients can write to Redis: one of the two values is not what was stored
                encoded = sent or read_vector(local, query, retriever.index.dimension)
        cached = record is not None or (sent is None and encoded is not None)
        self._metrics.observe_cache("hit" if cached else "miss" if outcome == "hit" else outcome)
        if record is None:
            read, vector = encoded or (query, None)
            record = await self.pipeline.search(read, vector, write)
            if vector_key in shared:
                memory.put(vector_key, shared[vector_key])
            self._cache.share(shared)
        if not record.passing:
            memory.put(key, record)
        return record
