"""The two places where answers are kept: replies in this process, and in Redis what others can make theirs of."""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from cachetools import LRUCache

from taugate.errors import InputError
from taugate.retrieval.release.reader import Release
from taugate.retrieval.retriever import Query
from taugate.service.cache.redis_store import Outcome, RedisStore
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings

# Of what the values look like: another number, and nothing that an older version wrote is read.
_SCHEMA = 4

_every_field = attrgetter(*(field.name for field in fields(Query)))  # so that a new one cannot be forgotten here


class Keys:
    """Keys of one release and encoder: `taugate:<schema>:<release>:<precision>:<kind>:<hash>`.

    A release never changes, so that nothing of it ever has to be removed from a cache but for want of room.
    """

    def __init__(self, release: Release) -> None:
        self._prefix = f"taugate:{_SCHEMA}:{release.manifest.release_id}:{release.precision}"

    def vector(self, query: Query) -> str:
        """Of a query's vector, for those alone who may see the same: others could time whether it was asked for."""
        return self._key("vector", (query.text, query.permitted))

    def found(self, query: Query, depth: int) -> str:
        """Of the documents that a search of that depth found, whatever is made of them."""
        return self._key("found", (query.text, depth, query.filter, query.permitted))

    def reply(self, query: Query, *, include_text: bool) -> str:
        """Of all that is answered to a query but the id of the answer."""
        return self._key("reply", (*_every_field(query), include_text))

    def _key(self, kind: str, asked: object) -> str:
        return f"{self._prefix}:{kind}:{hashlib.sha256(repr(asked).encode()).hexdigest()}"


# Of a key, and of the tables that hold it and its value: 450 to 550 measured with tracemalloc in a full cache that lets
# go of entries, on CPython 3.11 (tests/service/cache/test_memory.py).
_ENTRY_BYTES = 512


class Value(Protocol):
    """What is kept: a reply, or a vector that has its numbers to itself."""

    @property
    def nbytes(self) -> int:
        """What it takes of memory."""
        ...


class Memory:
    """At most so many bytes; 0 keeps nothing. Of one event loop."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._entries: LRUCache[str, Value] = LRUCache(most_bytes, getsizeof=_size)

    def get(self, key: str) -> Value | None:
        """The value, which becomes the most recently used."""
        value: Value | None = self._entries.get(key)
        return value

    def put(self, key: str, value: Value) -> None:
        """Keep a value, and let go of what was used longest ago; one that is over the limit by itself is not kept."""
        if _size(value) <= self.most_bytes:
            self._entries[key] = value

    @property
    def bytes(self) -> int:
        """What the entries take."""
        return int(self._entries.currsize)


def _size(value: Value) -> int:
    return value.nbytes + _ENTRY_BYTES


Result = TypeVar("Result")


class Flights(Generic[Result]):
    """Work in flight by key. Of one event loop."""

    def __init__(self) -> None:
        self._landings: dict[str, asyncio.Future[Result]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._landings

    async def join(self, key: str, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of the work in flight under this key, or of `work` when there is none.

        Who asks first does the work, without a task of its own; when it is cancelled, one of those who wait begins it
        anew. What it raises, all are told.
        """
        while (landing := self._landings.get(key)) is not None:
            await asyncio.wait((landing,))
            if not landing.cancelled():
                return landing.result()
        landing = self._landings[key] = asyncio.get_running_loop().create_future()
        try:
            result = await work()
        except Exception as error:
            landing.set_exception(error)
            landing.exception()  # raised here as well: asyncio need not report that nobody else waited for it
            raise
        except BaseException:
            landing.cancel()
            raise
        else:
            landing.set_result(result)
            return result
        finally:
            del self._landings[key]


class Cache:
    """memory: of this process; shared: of all replicas, None where there is no Redis."""

    def __init__(self, memory: Memory, shared: RedisStore | None) -> None:
        self.memory, self.shared = memory, shared

    async def fetch(self, keys: Sequence[str]) -> tuple[Outcome, list[bytes | None]]:
        """What others have written; nothing of it can be relied on before it has been looked at."""
        if self.shared is None:
            return "miss" if self.memory.most_bytes else "bypass", [None] * len(keys)
        return await self.shared.get(keys)

    def share(self, values: Mapping[str, bytes]) -> None:
        """Leave values for other replicas."""
        if self.shared is not None:
            self.shared.put(values)

    async def close(self) -> None:
        """Let go of the connections."""
        if self.shared is not None:
            await self.shared.close()


def open_cache(settings: Settings, metrics: Metrics) -> Cache:
    """The cache that the settings ask for; Redis is asked for nothing yet. Raises InputError."""
    memory = Memory(settings.cache.max_bytes)
    if settings.cache.redis_url is None:
        return Cache(memory, None)
    url, timeout = settings.cache.redis_url.get_secret_value(), settings.cache.redis_timeout_ms / 1000
    try:
        shared = RedisStore(url, timeout, settings.cache.redis_ttl_seconds, lambda up: metrics.redis_up.set(int(up)))
    except ValueError as error:
        raise InputError("TAUGATE_REDIS_URL: no such URL; redis://, rediss:// and unix:// are understood") from error
    return Cache(memory, shared)
