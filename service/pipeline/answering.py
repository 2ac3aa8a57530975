"""The way from a query to its reply: from the cache, from an equal query in flight, or from the engine."""

import asyncio
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.query import Query
from taugate.retrieval.vectors.similarity import Float32
from taugate.service.cache.cache import Cache, Flights, Keys
from taugate.service.cache.redis_store import Outcome
from taugate.service.drift.verdict import NOT_WATCHED
from taugate.service.drift.watch import Watch
from taugate.service.metrics import Metrics
from taugate.service.pipeline.admission import Users
from taugate.service.pipeline.engine import Engine
from taugate.service.pipeline.reply import Reply

# Of a vector's square: those of queries are of unit length, or zero where a text has no token.
_LONGEST = 1.01


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
        await asyncio.to_thread(self.engine.release.close)

    def drift(self, permitted: Filter) -> bytes:
        """What replies say of drift, as JSON; nothing to a key with a filter, as what is watched is others' traffic."""
        return NOT_WATCHED if self.watch is None or permitted else self.watch.verdict

    def search(self, query: Query, *, include_text: bool) -> Search:
        """A query as it is answered here."""
        return Search(query, include_text, self._keys.reply(query, include_text=include_text))

    def known(self, search: Search) -> Reply | None:
        """The reply, where this process has it."""
        reply = self._cache.memory.get(search.key)
        if not isinstance(reply, Reply):
            return None
        self._count("hit")
        return reply

    async def reply(self, search: Search) -> Reply:
        """The reply, wherever it comes from. How long to wait for it is the caller's to say."""
        if search.key in self._flights:
            self._count("hit")
        return await self._flights.join(search.key, lambda: self._work_out(search))

    async def _work_out(self, search: Search) -> Reply:
        query, cache = search.query, self._cache
        found_key = self._keys.found(query, self.engine.release.retriever.depth(query))
        vector_key = self._keys.vector(query)
        began = time.perf_counter()
        outcome, (positions, stored) = await cache.fetch([found_key, vector_key])
        if cache.shared:
            self._metrics.observe_stage("cache", time.perf_counter() - began)
        own = cache.memory.get(vector_key)
        vector = own if isinstance(own, np.ndarray) else self._vector(stored)
        found = None
        if positions is not None and vector is not None:
            try:
                found = self.engine.recall(query, vector, _positions(positions))
            except ValueError:  # others can write to Redis: one of the two is not what was left there
                vector = own if isinstance(own, np.ndarray) else None
        self._count("hit" if vector is not None else "miss" if outcome == "hit" else outcome)
        if found is None:
            found = await self.engine.answer(query, vector)
            vector = found.vector.copy()  # what it is a row of can go
            cache.memory.put(vector_key, vector)
            cache.share({found_key: found.answer.found.astype(np.int32).tobytes(), vector_key: vector.tobytes()})
        reply = Reply.of(found, self.engine.release.manifest, include_text=search.include_text)
        cache.memory.put(search.key, reply)
        return reply

    def _vector(self, stored: bytes | None) -> Float32 | None:
        """What may be anything, as a vector that a query can have; None where it is none."""
        if stored is None or len(stored) != 4 * self.engine.release.retriever.index.dimension:
            return None
        vector: Float32 = np.frombuffer(stored, dtype=np.float32)
        with np.errstate(over="ignore"):
            return vector if np.dot(vector, vector) <= _LONGEST else None  # nor is it, where one is not a number

    def _count(self, outcome: Outcome) -> None:
        self._metrics.observe_cache(outcome)


def _positions(stored: bytes) -> NDArray[np.int64]:
    """Raises ValueError where these are no whole numbers of 4 bytes."""
    return np.frombuffer(stored, dtype=np.int32).astype(np.int64)
