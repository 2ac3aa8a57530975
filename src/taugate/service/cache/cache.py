"""The cache of one process: replies and vectors in memory, Redis behind it for what replicas can share."""

import asyncio
import hashlib
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from cachetools import LRUCache

from taugate.retrieval.query import Query
from taugate.retrieval.release.reader import Release
from taugate.service.cache.redis_cache import CacheOutcome, RedisCache
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings

# Version of what the values look like: with another number, nothing that an older version wrote is read.
_SCHEMA = 5
# A key, and the tables that hold it and its value: 450 to 550 bytes measured with tracemalloc in a full cache that
# evicts entries, on CPython 3.11 (tests/service/cache/test_memory.py).
_ENTRY_BYTES = 512

_every_field = attrgetter(*(field.name for field in fields(Query)))  # so that a new one cannot be forgotten here


class CacheKeys:
    """Builds keys of one release and precision: `taugate:<schema>:<release>:<precision>:<kind>:<hash>`.

    A release never changes, so entries are never invalidated, only evicted.
    """

    def __init__(self, release: Release) -> None:
        """release: whose replies are cached."""
        self._prefix = f"taugate:{_SCHEMA}:{release.manifest.release_id}:{release.precision}"

    def vector(self, query: Query) -> str:
        """Return the key of a query's vector.

        Callers who may see other documents have another key: one could time whether the others asked the same.
        """
        return self._key("vector", (query.text, query.permitted))

    def found(self, query: Query, depth: int) -> str:
        """Return the key of the documents that a search found, before the cut.

        Args:
            depth: How many it searched for.
        """
        return self._key("found", (query.text, depth, query.filter, query.permitted, query.group_by))

    def reply(self, query: Query, form: object) -> str:
        """Return the key of a whole reply.

        Args:
            form: How it is written, all of it in its `repr`.
        """
        return self._key("reply", (*_every_field(query), form))

    def _key(self, kind: str, parts: object) -> str:
        return f"{self._prefix}:{kind}:{hashlib.sha256(repr(parts).encode()).hexdigest()}"


class CacheValue(Protocol):
    """Anything that knows its size: a reply, or a vector that is no view of another array."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        ...


class MemoryCache:
    """The most recently used values, up to a number of bytes. Belongs to one event loop."""

    def __init__(self, max_bytes: int) -> None:
        """max_bytes: of all entries, keys and tables included; 0 keeps nothing."""
        self.max_bytes = max_bytes
        self._entries: LRUCache[str, CacheValue] = LRUCache(max_bytes, getsizeof=_size)

    def get(self, key: str) -> CacheValue | None:
        """Return a value, which becomes the most recently used; None where there is none."""
        value: CacheValue | None = self._entries.get(key)
        return value

    def put(self, key: str, value: CacheValue) -> None:
        """Keep a value, and evict the least recently used; a value over the limit by itself is not kept."""
        if _size(value) <= self.max_bytes:
            self._entries[key] = value

    @property
    def bytes(self) -> int:
        """Bytes that the entries take."""
        return int(self._entries.currsize)


def _size(value: CacheValue) -> int:
    return value.nbytes + _ENTRY_BYTES


Result = TypeVar("Result")


class SingleFlight(Generic[Result]):
    """Does equal work once: callers with the same key at the same time share one result. Belongs to one event loop.

    After Go's golang.org/x/sync/singleflight.
    """

    def __init__(self) -> None:
        self._futures: dict[str, asyncio.Future[Result]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._futures

    # A coroutine function's own type has parameters for what it is sent and yields, which nothing here uses.
    async def join(self, key: str, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result of the work in flight under `key`, or do `work` where there is none.

        The first caller does the work, without a task of its own; when it is cancelled, one of those that wait begins
        anew. All of them get the exception that the work raises.
        """
        while (future := self._futures.get(key)) is not None:
            await asyncio.wait((future,))
            if not future.cancelled():
                return future.result()
        future = self._futures[key] = asyncio.get_running_loop().create_future()
        try:
            result = await work()
        except Exception as error:
            future.set_exception(error)
            future.exception()  # raised here as well: asyncio need not report that nobody else waited for it
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
    """Memory of this process, and Redis for all replicas."""

    def __init__(self, memory: MemoryCache, shared: RedisCache | None) -> None:
        """memory: of this process; shared: None where there is no Redis."""
        self.memory, self.shared = memory, shared

    async def fetch(self, keys: Sequence[str]) -> tuple[CacheOutcome, list[bytes | None]]:
        """Return what replicas have shared under each key; anybody may have written it, so check it before use."""
        if self.shared is None:
            return "miss" if self.memory.max_bytes else "bypass", [None] * len(keys)
        return await self.shared.get(keys)

    def share(self, values: Mapping[str, bytes]) -> None:
        """Write values to Redis in the background, where there is one."""
        if self.shared is not None:
            self.shared.put(values)

    async def close(self) -> None:
        """Close the connections to Redis."""
        if self.shared is not None:
            await self.shared.close()


def open_cache(settings: Settings, metrics: Metrics) -> TieredCache:
    """Build the cache that the settings ask for, without connecting yet."""
    memory = MemoryCache(settings.cache.max_bytes)
    if settings.cache.redis_url is None:
        metrics.redis_up.set(math.nan)  # neither up nor down, so that no alert takes it for an outage
        return TieredCache(memory, None)
    url, timeout = settings.cache.redis_url.get_secret_value(), settings.cache.redis_timeout_ms / 1000
    shared = RedisCache(url, timeout, settings.cache.redis_ttl_seconds, lambda up: metrics.redis_up.set(int(up)))
    return TieredCache(memory, shared)
