"""Replies to queries: remembered, shared with an equal query in flight, rebuilt from Redis, or searched for.

Each is written once, as the bytes of its JSON, in the form of the API that was asked.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from taugate.retrieval.explanation import Explanation
from taugate.retrieval.query import Answer, Query, Reason
from taugate.retrieval.release.records import State
from taugate.retrieval.vectors.similarity import Float32
from taugate.service.cache.cache import CacheKeys, SingleFlight, TieredCache
from taugate.service.errors import Overloaded
from taugate.service.metrics import Metrics
from taugate.service.pipeline.queue import Admission, SearchResult
from taugate.service.pipeline.search import SearchPipeline

# The square of a vector's length: queries have unit length, or 0 where a text has no token.
_MAX_SQUARED_LENGTH = 1.01
# Explanations under way. Each takes as long as many searches, and they must not take the places of these in the queue.
_MAX_EXPLANATIONS = 8
# Of the object, the heads of its three strings, and what the allocator rounds up (tests/service/cache/test_memory.py).
_OBJECT_BYTES = 256
# Of the byte behind a cached vector: how the encoder read the query.
_TRUNCATED_BIT, _UNREADABLE_BIT = 1, 2
_APPROXIMATE = {"approximate": True}  # of a search within a filter that an engine evaluates
_TRUNCATED = {"truncated": True}  # of a query of which the encoder reads only the beginning
_EXPLORED = {"explored": True}  # of a result that is below the threshold
# In the place of what changes from one request to the next. JSON escapes control characters, so it has no others.
_QUERY_ID, _DRIFT = b"\x00", b"\x01"
_CHANGING = {"drift": orjson.Fragment(_DRIFT), "query_id": orjson.Fragment(b'"' + _QUERY_ID + b'"')}


class ReplyForm(Protocol):
    """How an API writes a reply. Its `repr` is in the key of the cache, and so has all that decides what is written."""

    def write(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON object to send.

        Args:
            reply: To a search, with the fields of docs/api.md. `drift` and `query_id` are known only when it is sent;
                what stands for them may be put anywhere, and often.
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
        """Return the reply; see ReplyForm."""
        if self.include_text:
            return reply
        return reply | {"results": [each | {"title": None, "text": None} for each in reply["results"]]}


@dataclass(frozen=True, slots=True)
class SearchTask:
    """A query, how its reply is written, and the key that this is cached under."""

    query: Query
    form: ReplyForm
    key: str


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """A query's vector as it is cached, and how the encoder read the query.

    Attributes:
        vector: (d',) float32, no view of another array.
        truncated: As of Query.
        unreadable: As of Query.
    """

    vector: Float32
    truncated: bool = False
    unreadable: bool = False

    @classmethod
    def of(cls, result: SearchResult) -> Self:
        """Take it from a search; the vector is copied, so that the batch that it is a row of can go."""
        return cls(result.vector.copy(), result.query.truncated, result.query.unreadable)

    @classmethod
    def read(cls, stored: bytes | None, dimension: int) -> Self | None:
        """Read what `to_bytes` returned, but others may have written; None for what no query can have.

        Args:
            dimension: d'.
        """
        if stored is None or len(stored) != 4 * dimension + 1 or stored[-1] > _TRUNCATED_BIT | _UNREADABLE_BIT:
            return None
        vector: Float32 = np.frombuffer(stored, dtype=np.float32, count=dimension)
        with np.errstate(over="ignore"):
            if not np.dot(vector, vector) <= _MAX_SQUARED_LENGTH:  # nor where one is not a number
                return None
        return cls(vector, bool(stored[-1] & _TRUNCATED_BIT), bool(stored[-1] & _UNREADABLE_BIT))

    def to_bytes(self) -> bytes:
        """Return the vector, and a byte with a bit for each flag."""
        return self.vector.tobytes() + bytes([_TRUNCATED_BIT * self.truncated | _UNREADABLE_BIT * self.unreadable])

    def query(self, query: Query) -> Query:
        """Return a query of this text with what the encoder read of it."""
        if not (self.truncated or self.unreadable):
            return query
        return replace(query, truncated=self.truncated, unreadable=self.unreadable)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return _OBJECT_BYTES + self.vector.nbytes


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as it is cached: its JSON, and what metrics, drift and feedback need of it.

    Attributes:
        body: The JSON, with a control character in the place of what changes from one request to the next.
        kept: How many documents.
        considered: How many documents.
        reason: Why none is kept.
        observed: For drift, float32: how many of the calibration's K are kept, the similarities of all K, and those of
            random documents; empty within a filter.
        shown: For feedback, the positions of the n documents in the reply, int32, and their similarities, float32.
        places: For the query log, their ranks, int32, and the probability with which each is shown, float32.
        explored: How many of those kept only exploration shows.
        truncated: How the encoder read the query, as of Query.
        unreadable: How the encoder read the query, as of Query.
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
            result: Of the search.
            release: Id of the release that was searched, and the state of its calibration.
            state: Id of the release that was searched, and the state of its calibration.
            form: In which it is written.
        """
        answer, query = result.answer, result.query
        # Copied, and so as small as it is: orjson's own bytes keep up to fourteen times as much for themselves.
        body = bytes(memoryview(orjson.dumps(form.write(_fields(result, release, state)))))
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
        """Complete the JSON.

        Args:
            query_id: Hexadecimal digits.
            drift: Its field `drift`, as JSON, where it has one.
        """
        return self.body.replace(_DRIFT, drift).replace(_QUERY_ID, query_id.encode())

    def query_as_read(self, query: Query) -> Query:
        """Return a query with what the encoder read of it, as it was when the reply was built."""
        if self.truncated == query.truncated and self.unreadable == query.unreadable:
            return query
        return replace(query, truncated=self.truncated, unreadable=self.unreadable)

    def rank(self, row: int) -> int:
        """Return the place of a result among all that were considered, from 1.

        Args:
            row: Its position in the reply.
        """
        return int(np.frombuffer(self.places, dtype=np.int32, count=row + 1)[row])

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return _OBJECT_BYTES + len(self.body) + len(self.observed) + len(self.shown) + len(self.places)


class CachedSearch:
    """Replies of one release. Belongs to one event loop."""

    def __init__(self, pipeline: SearchPipeline, cache: TieredCache, admission: Admission, metrics: Metrics) -> None:
        """pipeline: searches the release; cache, admission and metrics: of the process, shared by its releases."""
        self.pipeline = pipeline
        self._cache, self._admission, self._metrics = cache, admission, metrics
        self._keys = CacheKeys(pipeline.release)
        self._in_flight: SingleFlight[Reply] = SingleFlight()
        self._explanations = 0  # under way
        manifest = pipeline.release.manifest
        self._release_id = manifest.release_id
        self._state: State = manifest.state

    def task(self, query: Query, form: ReplyForm) -> SearchTask:
        """Prepare a query.

        Args:
            form: In which its reply is written.
        """
        return SearchTask(query, form, self._keys.reply(query, form))

    def remembered(self, task: SearchTask) -> Reply | None:
        """Return the reply where this process remembers it."""
        reply = self._cache.memory.get(task.key)
        if not isinstance(reply, Reply):
            return None
        self._metrics.observe_cache("hit")
        return reply

    async def replies(self, tasks: Sequence[SearchTask]) -> list[Reply]:
        """Work out replies that are not remembered, in the order of the tasks.

        Raises:
            Overloaded: Where the tasks are more than may wait, DeadlineExceeded where they take too long, and what
                SearchPipeline.search raises.
        """
        if not tasks:
            return []
        async with self._admission.admitted(len(tasks)):
            if len(tasks) == 1:  # without an asyncio task of its own
                return [await self._reply(tasks[0])]
            return await asyncio.gather(*map(self._reply, tasks))

    async def explain(self, query: Query, document_id: str) -> Explanation:
        """Explain what a search does with a document, under the same admission rules as a search.

        Args:
            query: See retrieval.explanation, whose errors are raised as well as those of `replies`.
            document_id: See retrieval.explanation, whose errors are raised as well as those of `replies`.
        """
        if self._explanations >= _MAX_EXPLANATIONS:
            raise Overloaded(f"{_MAX_EXPLANATIONS} explanations are under way; try again later")
        self._explanations += 1
        try:
            async with self._admission.admitted(1):
                return await self.pipeline.explain(query, document_id)
        finally:
            self._explanations -= 1

    async def _reply(self, task: SearchTask) -> Reply:
        """Join the work on an equal query, or begin it."""
        if task.key in self._in_flight:
            self._metrics.observe_cache("hit")
        return await self._in_flight.join(task.key, lambda: self._work_out(task))

    async def _work_out(self, task: SearchTask) -> Reply:
        """Build a reply from what Redis knows of the query, or from a search, and remember it."""
        query, memory = task.query, self._cache.memory
        found_key = self._keys.found(query, self.pipeline.release.retriever.depth(query))
        vector_key = self._keys.vector(query)
        began = time.perf_counter()
        outcome, (stored_positions, stored_vector) = await self._cache.fetch([found_key, vector_key])
        if self._cache.shared:
            self._metrics.observe_stage("cache", time.perf_counter() - began)
        remembered = memory.get(vector_key)
        own = remembered if isinstance(remembered, EncodedQuery) else None
        encoded = own or EncodedQuery.read(stored_vector, self.pipeline.release.retriever.index.dimension)
        result = None
        if stored_positions is not None and encoded is not None and self.pipeline.release.retriever.rescores(query):
            try:
                result = self.pipeline.rescore(encoded.query(query), encoded.vector, _read_positions(stored_positions))
            except ValueError:  # others can write to Redis: one of the two is not what was left there
                encoded = own
        self._metrics.observe_cache("hit" if encoded is not None else "miss" if outcome == "hit" else outcome)
        if result is None:
            if encoded is None:
                result = await self.pipeline.search(query)
            else:
                result = await self.pipeline.search(encoded.query(query), encoded.vector)
            self._remember(result, found_key, vector_key)
        reply = Reply.build(result, release=self._release_id, state=self._state, form=task.form)
        memory.put(task.key, reply)
        return reply

    def _remember(self, result: SearchResult, found_key: str, vector_key: str) -> None:
        encoded = EncodedQuery.of(result)
        self._cache.memory.put(vector_key, encoded)
        shared = {vector_key: encoded.to_bytes()}
        if result.answer.found is not None and not self.pipeline.release.retriever.passages.remote:
            shared[found_key] = result.answer.found.astype(np.int32).tobytes()
        self._cache.share(shared)


def _read_positions(stored: bytes) -> NDArray[np.int64]:
    """Read document positions.

    Raises:
        ValueError: Where these are no whole numbers of 4 bytes.
    """
    return np.frombuffer(stored, dtype=np.int32).astype(np.int64)


def _observed(result: SearchResult) -> bytes:
    uncut = result.answer.uncut
    if uncut is None:
        return b""
    return np.concatenate([[np.float32(uncut.kept)], uncut.scores, result.random], dtype=np.float32).tobytes()


def _fields(result: SearchResult, release: str, state: State) -> dict[str, Any]:
    answer = result.answer
    results = [
        {
            "id": document.id,
            "document_id": document.document_id,
            "rank": rank,
            "score": score,
            "relevance": relevance,
            "below_threshold": below,
            **(_EXPLORED if propensity < 1 else {}),
            "title": document.title,
            "text": document.text,
            "metadata": document.metadata,
        }
        for document, rank, score, relevance, below, propensity in zip(
            result.documents,
            answer.ranks.tolist(),
            answer.scores.tolist(),
            _relevance(answer),
            answer.below_threshold.tolist(),
            answer.propensities.tolist(),
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
        "release": release,
        **_CHANGING,
    }


def _relevance(answer: Answer) -> list[float] | list[None]:
    """Probability of relevance for each result; None where the release has no model of it."""
    return [None] * len(answer.scores) if answer.relevance is None else answer.relevance.tolist()
