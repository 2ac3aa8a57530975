"""Replies to queries: cached in memory, shared with an equal query in flight, rebuilt from Redis, or searched for."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from taugate.retrieval.explained import Explanation
from taugate.retrieval.query import Answer, Query
from taugate.retrieval.vectors.similarity import Float32
from taugate.service.access.admission import Admission
from taugate.service.cache.cache import CacheKeys, SingleFlight, TieredCache
from taugate.service.metrics import Metrics
from taugate.service.pipeline.forms import ReplyForm, write_body
from taugate.service.pipeline.record import SearchRecord, flagged_vector, position_bytes, read_positions, read_vector

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.service.pipeline.search import SearchPipeline


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
        """Search for one or more queries that are not `cached`, each with its key and the form of its reply.

        Returns their records in order. Raises as SearchPipeline.search, too.

        Raises:
            Overloaded: If there are more queries than may wait.
            DeadlineExceeded: If they take too long.
        """
        async with self._admission.enqueue(len(searches)):
            if len(searches) == 1:  # without an asyncio task of its own
                return [await self._join(*searches[0])]
            return await asyncio.gather(*(self._join(*search) for search in searches))

    async def explain(self, query: Query, document_id: str) -> Explanation:
        """Explain what a search does with a document, under the same limits as a search.

        See retrieval.explanation for the arguments and errors; raises as `records`, too.
        """
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
