"""The way from a query to its reply: from the cache, from an equal query in flight, or from the engine."""

import asyncio
import time
from dataclasses import dataclass

import numpy as np

from retrieval.retriever import Query
from retrieval.similarity import Float32
from service.cache.cache import Cache
from service.cache.flights import Flights
from service.cache.keys import Keys
from service.cache.redis_store import Outcome
from service.drift.verdict import NOT_WATCHED
from service.drift.watch import Watch
from service.engine import Engine
from service.metrics import Metrics
from service.reply import Reply
from service.users import Users


@dataclass(frozen=True, slots=True)
class Search:
    """A query, whether its results carry their texts, and what its reply is cached under."""

    query: Query
    include_text: bool
    key: str


class Answering:
    """Replies of one release; watch: of their drift, where there is one; users: requests that it is to answer."""

    def __init__(self, engine: Engine, cache: Cache, metrics: Metrics, watch: Watch | None) -> None:
        self.engine, self.watch = engine, watch
        self._cache, self._metrics = cache, metrics
        self._keys = Keys(engine.release)
        self._flights: Flights[Reply] = Flights()
        self.users = Users()

    @property
    def release_id(self) -> str:
        """Of the release that answers."""
        return self.engine.release.manifest.release_id

    async def close(self, *, replaced: bool = False) -> None:
        """Answer what is at work, refuse what waits, and stop watching; replaced: another release answers now."""
        await asyncio.to_thread(self.engine.close)
        if self.watch is not None:
            await self.watch.close(forget=replaced)
        self.engine.release.close()

    @property
    def drift(self) -> bytes:
        """What replies say of drift, as JSON."""
        return NOT_WATCHED if self.watch is None else self.watch.verdict

    def search(self, query: Query, *, include_text: bool) -> Search:
        """A query as it is answered here."""
        return Search(query, include_text, self._keys.reply(query, include_text=include_text))

    def known(self, search: Search) -> Reply | None:
        """The reply, where this process has it."""
        packed = self._cache.memory.get(search.key)
        if packed is None:
            return None
        self._count("hit")
        return Reply.unpack(packed)

    async def reply(self, search: Search) -> Reply:
        """The reply, wherever it comes from. How long to wait for it is the caller's to say."""
        if search.key in self._flights:
            self._count("hit")
        return await self._flights.join(search.key, lambda: self._work_out(search))

    async def _work_out(self, search: Search) -> Reply:
        key, query, cache = search.key, search.query, self._cache
        vector_key = self._keys.vector(query.text)
        began = time.perf_counter()
        outcome, (packed, stored) = await cache.fetch([key, vector_key])
        if cache.shared:
            self._metrics.observe_stage("cache", time.perf_counter() - began)
        reply = _reply(packed)
        if reply is not None:
            cache.memory.put(key, reply.pack())
            self._count("hit")
            return reply
        vector = self._vector(cache.memory.get(vector_key) or stored)
        self._count("hit" if vector is not None else "miss" if outcome == "hit" else outcome)
        found = await self.engine.answer(query, vector)
        reply = Reply.of(found, self.engine.release.manifest, include_text=search.include_text)
        cache.put({key: reply.pack(), vector_key: found.vector.tobytes()})
        return reply

    def _vector(self, stored: bytes | None) -> Float32 | None:
        """What may be anything, as a vector of the index."""
        if stored is None or len(stored) != 4 * self.engine.release.retriever.index.dimension:
            return None
        vector: Float32 = np.frombuffer(stored, dtype=np.float32)
        return vector if np.isfinite(vector).all() else None

    def _count(self, outcome: Outcome) -> None:
        self._metrics.observe_cache(outcome)


def _reply(packed: bytes | None) -> Reply | None:
    """What may be anything, as a reply."""
    try:
        return None if packed is None else Reply.unpack_strange(packed)
    except ValueError:
        return None
