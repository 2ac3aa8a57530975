"""Replies to queries: cached in memory, shared with an equal query in flight, rebuilt from Redis, or searched for.

Each is serialized once, as JSON bytes, in the form of the API that was called.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.retrieval.documents.store import Document
from taugate.retrieval.explanation import Explanation
from taugate.retrieval.query import Answer, Query, Reason
from taugate.retrieval.release.records import State
from taugate.retrieval.vectors.similarity import Float32
from taugate.service.cache.cache import CacheKeys, SingleFlight, TieredCache
from taugate.service.errors import Overloaded
from taugate.service.metrics import Metrics
from taugate.service.pipeline.queue import QueryLimits, SearchResult
from taugate.service.pipeline.search import SearchPipeline

# The square of a vector's length: queries have unit length, or 0 if a text has no token.
_MAX_SQUARED_LENGTH = 1.01
# Explanations in progress. Each takes as long as many searches, and must not take their places in the queue.
_MAX_EXPLANATIONS = 8
# Of the object, the heads of its three strings, and the allocator's rounding (tests/service/cache/test_memory.py).
_OBJECT_BYTES = 256
# Bits of the byte after a cached vector: how the encoder read the query.
_TRUNCATED_BIT, _UNREADABLE_BIT = 1, 2
_APPROXIMATE = {"approximate": True}  # for a search within a filter that an engine evaluates
_TRUNCATED = {"truncated": True}  # if the encoder reads only the beginning of the query
_EXPLORED = {"explored": True}  # for a result below the threshold
# Placeholders for values that differ between requests. JSON escapes control characters, so the body has no others.
_QUERY_ID, _DRIFT = b"\x00", b"\x01"
_CHANGING = {"drift": orjson.Fragment(_DRIFT), "query_id": orjson.Fragment(b'"' + _QUERY_ID + b'"')}


class ReplyForm(Protocol):
    """How an API writes a reply. Its `repr` is part of the cache key, so it must have all that changes the output."""

    def write(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON object to send.

        Args:
            reply: Reply to a search, with the fields of docs/api.md. `drift` and `query_id` are placeholders that are
                filled in when the reply is sent; they may be placed anywhere, any number of times.
        """
        ...


@dataclass(frozen=True, slots=True)
class SearchForm:
    """The form of /search.

    Attributes:
        include_text: Whether results carry title and text.
    """

    include_text: bool = True

    def write(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Return the reply, without title and text if they were not requested."""
        if self.include_text:
            return reply
        return reply | {"results": [result | {"title": None, "text": None} for result in reply["results"]]}


@dataclass(frozen=True, slots=True)
class SearchTask:
    """A query, the form of its reply, and the cache key of that reply."""

    query: Query
    form: ReplyForm
    key: str


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """A query's vector as it is cached, and how the encoder read the query.

    Attributes:
        vector: (d',) float32, not a view of another array.
        truncated: See Query.
        unreadable: See Query.
    """

    vector: Float32
    truncated: bool = False
    unreadable: bool = False

    @classmethod
    def of(cls, result: SearchResult) -> Self:
        """Take it from a search. The vector is copied, so that its batch can be freed."""
        return cls(result.vector.copy(), result.query.truncated, result.query.unreadable)

    @classmethod
    def read(cls, stored: bytes | None, dimension: int) -> Self | None:
        """Parse the bytes of `to_bytes`; None for bytes that no query can have, as others can write to Redis.

        Args:
            stored: The bytes, None if there are none.
            dimension: d'.
        """
        if stored is None or len(stored) != 4 * dimension + 1 or stored[-1] > _TRUNCATED_BIT | _UNREADABLE_BIT:
            return None
        vector: Float32 = np.frombuffer(stored, dtype=np.float32, count=dimension)
        with np.errstate(over="ignore"):
            if not np.dot(vector, vector) <= _MAX_SQUARED_LENGTH:  # true for NaN as well
                return None
        return cls(vector, bool(stored[-1] & _TRUNCATED_BIT), bool(stored[-1] & _UNREADABLE_BIT))

    def to_bytes(self) -> bytes:
        """Return the vector, and a byte with a bit for each flag."""
        return self.vector.tobytes() + bytes([_TRUNCATED_BIT * self.truncated | _UNREADABLE_BIT * self.unreadable])

    def query(self, query: Query) -> Query:
        """Return the query with the flags of how the encoder read it."""
        if not (self.truncated or self.unreadable):
            return query
        return replace(query, truncated=self.truncated, unreadable=self.unreadable)

    @property
    def nbytes(self) -> int:
        """Bytes of memory used."""
        return _OBJECT_BYTES + self.vector.nbytes


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as it is cached: its JSON, and what metrics, drift and feedback need.

    Attributes:
        body: The JSON, with placeholders for values that differ between requests.
        kept: Number of kept documents.
        considered: Number of documents considered.
        reason: Why no document is kept.
        observed: For drift, float32: how many of the calibration's K are kept, the similarities of all K, and those of
            random documents; empty within a filter.
        shown: For feedback, the positions of the n documents in the reply, int32, and their similarities, float32.
        places: For the query log, the ranks of these documents, int32, and the probability of showing each, float32.
        explored: Number of kept documents that only exploration shows.
        truncated: See Query.
        unreadable: See Query.
    """

    body: bytes
    kept: int
    considered: int
    reason: Reason | None
    observed: bytes
    shown: bytes
    places: bytes = b""
    explored: int = 0
    truncated: bool = False
    unreadable: bool = False

    @classmethod
    def build(cls, result: SearchResult, *, release: str, state: State, form: ReplyForm) -> Self:
        """Build the reply.

        Args:
            result: Result of the search.
            release: Id of the release that was searched.
            state: State of the release's calibration.
            form: Form of the reply.
        """
        answer, query = result.answer, result.query
        fields = search_fields(answer, result.documents, release=release, state=state)
        # Copied to its exact size: orjson's own bytes keep up to fourteen times as much memory.
        body = bytes(memoryview(orjson.dumps(form.write(fields | _CHANGING))))
        shown = answer.positions.astype(np.int32).tobytes() + answer.scores.tobytes()
        places = answer.ranks.astype(np.int32).tobytes() + answer.propensities.tobytes()
        explored = int(np.count_nonzero(answer.propensities < 1))
        kept = len(result.documents)
        return cls(
            body,
            kept,
            answer.considered,
            answer.reason,
            _observed(result),
            shown,
            places,
            explored,
            query.truncated,
            query.unreadable,
        )

    def to_json(self, query_id: str, drift: bytes) -> bytes:
        """Return the JSON with its placeholders filled in.

        Args:
            query_id: Hexadecimal digits.
            drift: The field `drift`, as JSON.
        """
        return self.body.replace(_DRIFT, drift).replace(_QUERY_ID, query_id.encode())

    def query_as_read(self, query: Query) -> Query:
        """Return a query with the flags of how the encoder read it when the reply was built."""
        if self.truncated == query.truncated and self.unreadable == query.unreadable:
            return query
        return replace(query, truncated=self.truncated, unreadable=self.unreadable)

    def rank(self, row: int) -> int:
        """Return the rank, from 1, of the result in this row of the reply among all results considered."""
        return int(np.frombuffer(self.places, dtype=np.int32, count=row + 1)[row])

    @property
    def nbytes(self) -> int:
        """Bytes of memory used."""
        return _OBJECT_BYTES + len(self.body) + len(self.observed) + len(self.shown) + len(self.places)


class CachedSearch:
    """Searches one release, through the caches. Belongs to one event loop."""

    def __init__(self, pipeline: SearchPipeline, cache: TieredCache, limits: QueryLimits, metrics: Metrics) -> None:
        """Search with a pipeline; cache, limits and metrics are those of the process, shared by its releases."""
        self.pipeline = pipeline
        self._cache, self._limits, self._metrics = cache, limits, metrics
        self._keys = CacheKeys(pipeline.release)
        self._in_flight: SingleFlight[Reply] = SingleFlight()
        self._explanations = 0  # in progress
        manifest = pipeline.release.manifest
        self._release_id = manifest.release_id
        self._state: State = manifest.state

    def task(self, query: Query, form: ReplyForm) -> SearchTask:
        """Prepare a query whose reply is to have this form."""
        return SearchTask(query, form, self._keys.reply(query, form))

    def remembered(self, task: SearchTask) -> Reply | None:
        """Return the reply if it is in this process's memory."""
        reply = self._cache.memory.get(task.key)
        if not isinstance(reply, Reply):
            return None
        self._metrics.observe_cache("hit")
        return reply

    async def replies(self, tasks: Sequence[SearchTask]) -> list[Reply]:
        """Return replies that are not in memory, in the order of the tasks. Raises as SearchPipeline.search, too.

        Raises:
            Overloaded: If there are more tasks than may wait.
            DeadlineExceeded: If they take too long.
        """
        if not tasks:
            return []
        async with self._limits.enqueue(len(tasks)):
            if len(tasks) == 1:  # without an asyncio task of its own
                return [await self._reply(tasks[0])]
            return await asyncio.gather(*map(self._reply, tasks))

    async def explain(self, query: Query, document_id: str) -> Explanation:
        """Explain what a search does with a document, under the same limits as a search.

        See retrieval.explanation for the arguments and errors; raises as `replies`, too.
        """
        if self._explanations >= _MAX_EXPLANATIONS:
            raise Overloaded(f"{_MAX_EXPLANATIONS} explanations are in progress; try again later")
        self._explanations += 1
        try:
            async with self._limits.enqueue(1):
                return await self.pipeline.explain(query, document_id)
        finally:
            self._explanations -= 1

    async def _reply(self, task: SearchTask) -> Reply:
        """Join an equal query in flight, or start the work."""
        if task.key in self._in_flight:
            self._metrics.observe_cache("hit")
        return await self._in_flight.join(task.key, lambda: self._build_reply(task))

    async def _build_reply(self, task: SearchTask) -> Reply:
        """Build a reply from Redis or a search, and cache it."""
        query, memory = task.query, self._cache.memory
        positions_key = self._keys.retrieved(query, self.pipeline.release.retriever.depth(query))
        vector_key = self._keys.vector(query)
        began = time.perf_counter()
        outcome, (stored_positions, stored_vector) = await self._cache.fetch([positions_key, vector_key])
        if self._cache.shared:
            self._metrics.observe_stage("cache", time.perf_counter() - began)
        cached = memory.get(vector_key)
        local = cached if isinstance(cached, EncodedQuery) else None
        encoded = local or EncodedQuery.read(stored_vector, self.pipeline.release.retriever.index.dimension)
        result = None
        if stored_positions is not None and encoded is not None and self.pipeline.release.retriever.rescores(query):
            try:
                result = self.pipeline.rescore(encoded.query(query), encoded.vector, _read_positions(stored_positions))
            except ValueError:  # other clients can write to Redis: one of the two values is not what was stored
                encoded = local
        self._metrics.observe_cache("hit" if encoded is not None else "miss" if outcome == "hit" else outcome)
        if result is None:
            if encoded is None:
                result = await self.pipeline.search(query)
            else:
                result = await self.pipeline.search(encoded.query(query), encoded.vector)
            self._share(result, positions_key, vector_key)
        reply = Reply.build(result, release=self._release_id, state=self._state, form=task.form)
        memory.put(task.key, reply)
        return reply

    def _share(self, result: SearchResult, positions_key: str, vector_key: str) -> None:
        encoded = EncodedQuery.of(result)
        self._cache.memory.put(vector_key, encoded)
        shared = {vector_key: encoded.to_bytes()}
        if result.answer.retrieved is not None and not self.pipeline.release.retriever.passages.remote:
            shared[positions_key] = result.answer.retrieved.astype(np.int32).tobytes()
        self._cache.share(shared)


def _read_positions(stored: bytes) -> NDArray[np.int64]:
    """Parse document positions.

    Raises:
        ValueError: If the bytes are not a multiple of 4.
    """
    return np.frombuffer(stored, dtype=np.int32).astype(np.int64)


def _observed(result: SearchResult) -> bytes:
    uncut = result.answer.uncut
    if uncut is None:
        return b""
    return np.concatenate([[np.float32(uncut.kept)], uncut.scores, result.random], dtype=np.float32).tobytes()


def search_fields(answer: Answer, documents: Sequence[Document], *, release: str, state: State) -> dict[str, Any]:
    """Return the fields of a reply to a search, except those that depend on the service: `drift` and `query_id`.

    Args:
        answer: The answer to the query.
        documents: Its documents, in order.
        release: Id of the release that was searched.
        state: State of the release's calibration.
    """
    results = [
        {
            "id": document.id,
            "document_id": document.document_id,
            "rank": rank,
            "score": score,
            "relevance": relevance,
            "below_threshold": below,
            **(_EXPLORED if propensity < 1 else {}),
            **parts,
            "title": document.title,
            "text": document.text,
            "metadata": document.metadata,
        }
        for document, rank, score, relevance, below, propensity, parts in zip(
            documents,
            answer.ranks.tolist(),
            answer.scores.tolist(),
            _relevance(answer),
            answer.below_threshold.tolist(),
            answer.propensities.tolist(),
            _parts(answer),
            strict=True,
        )
    ]
    return {
        "results": results,
        "threshold": answer.threshold,
        "policy": answer.policy,
        "calibrated": answer.calibrated,
        "calibration": state,
        **(_TRUNCATED if answer.truncated else {}),
        **(_APPROXIMATE if answer.approximate else {}),
        "considered": answer.considered,
        "dropped": answer.considered - len(results),
        "best_score": answer.best_score,
        "reason": answer.reason,
        **({} if answer.refusal is None else {"refusal": answer.refusal._asdict()}),
        "release": release,
    }


def _relevance(answer: Answer) -> list[float] | list[None]:
    """Return the probability of relevance of each result, None for each if the release has no relevance model."""
    return [None] * len(answer.scores) if answer.relevance is None else answer.relevance.tolist()


def _parts(answer: Answer) -> list[dict[str, Any]]:
    """Return the fields with the parts of each score; empty unless the query asks for them."""
    rows = range(len(answer.scores))
    return [{} if answer.parts is None else answer.parts.fields(row) for row in rows]
