"""Collects replies and judgements for drift detection, and appends them to the query log."""

import logging
import os
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taugate.drift.observations import Judgements, Observations, hashed, judgement_key, query_keys
from taugate.drift.query_log import LoggedJudgement, LoggedQuery, ShownResult, hashed_filter, line_bytes
from taugate.errors import EngineUnavailable
from taugate.retrieval.documents.filter_schema import write_filter
from taugate.retrieval.query import Query
from taugate.retrieval.release.reader import Release
from taugate.storage.files import append_lines
from taugate.storage.locks import EXCLUSIVE, acquire, is_at


class ServedReply(NamedTuple):
    """A reply that was sent. A tuple, because one is made for every request and tuples are fastest to make.

    Attributes:
        at: Unix time in seconds.
        query_id: Id of the reply.
        query: The query.
        key: Name of the API key, None without keys.
        observed: See Reply.
        shown: See Reply.
        places: See Reply.
    """

    at: float
    query_id: str
    query: Query
    key: str | None
    observed: bytes
    shown: bytes
    places: bytes


@dataclass(frozen=True, slots=True)
class JudgedResult:
    """A result that a user judged.

    Attributes:
        at: Unix time of the judgement, in seconds.
        query_id: Id of the reply.
        document_id: Id of the passage.
        similarity: Similarity with the query.
        relevant: Whether it answers the query.
        counts: Whether drift uses it: only the first relevant result of each reply.
        key: Name of the API key, None without keys.
        query: Text of the query if the judgement names it instead of a reply.
        rank: Rank among all results considered, from 1, None if unknown.
    """

    at: float
    query_id: str
    document_id: str
    similarity: float
    relevant: bool = True
    counts: bool = True
    key: str | None = None
    query: str | None = None
    rank: int | None = None


def comparable(served: Sequence[ServedReply], k: int, random: int) -> list[ServedReply]:
    """Return the replies that can be compared with the calibration: see Query.is_comparable.

    Args:
        served: Replies of any kind.
        k: K of the calibration.
        random: Number of random documents compared with each query.
    """
    size = 4 * (1 + k + random)
    return [reply for reply in served if len(reply.observed) == size]


def observations(served: Sequence[ServedReply], k: int, random: int) -> Observations:
    """Convert replies into columns; all must be `comparable` with `k` and `random`."""
    rows = np.frombuffer(b"".join(reply.observed for reply in served), dtype=np.float32).reshape(-1, 1 + k + random)
    # A clock may be set back; times must not decrease all the same.
    at = np.maximum.accumulate(np.array([reply.at for reply in served], dtype=np.float64))
    keys = query_keys(reply.query.text for reply in served)
    return Observations(at, keys, rows[:, 1 : 1 + k], rows[:, 1 + k :], rows[:, 0])


def join(parts: Sequence[Observations]) -> Observations:
    """Concatenate one or more parts in their order."""
    together = Observations.joined(parts)
    return replace(together, at=np.maximum.accumulate(together.at))


def judgements(judged: Sequence[JudgedResult]) -> Judgements:
    """Convert the judgements that drift uses into columns."""
    counted = [result for result in judged if result.counts]
    at = np.maximum.accumulate(np.array([result.at for result in counted], dtype=np.float64))
    keys = np.array([judgement_key(result.document_id, result.similarity) for result in counted], dtype=np.uint64)
    return Judgements(at, keys, np.array([result.similarity for result in counted], dtype=np.float32))


_log = logging.getLogger(__name__)
_LOCK_SECONDS = 30.0  # other workers append to the same file, each for a millisecond every few seconds
_CACHED_REPLIES = 1 << 12  # cached replies are sent again and again, faster than they could be parsed
_CACHED_IDS = 1 << 16  # of documents: reading one takes as long as writing the rest of a result, or a round trip
_MAX_LATE = 1 << 14  # replies that wait for an engine


class QueryLog:
    """Appends lines to a file, and creates it again after it was moved away, as by logrotate."""

    def __init__(self, path: Path, release: Release, *, texts: bool) -> None:
        """Write the traffic of a release to `path`, with queries and filters as they are if `texts`, else hashed."""
        self._path, self._texts = path, texts
        self._release, self._collection = release.manifest.release_id, release.manifest.data.name
        self._k = release.reference.top.shape[1]
        self._documents = release.documents
        self._ids: dict[int, str] = {}  # by position
        self._late: list[ServedReply] = []  # replies whose documents the engine could not provide yet
        self._results = lru_cache(_CACHED_REPLIES)(self._shown)
        self._writable = True

    def write(self, served: Sequence[ServedReply], judged: Sequence[JudgedResult]) -> None:
        """Append a line for each query and for each judgement.

        The first of several errors is logged, and again the first error after a successful write.
        """
        served = self._with_known_ids([*self._late, *served])
        if not served and not judged:
            return  # without a write, nothing is known about the file
        try:
            self._append(b"".join([*map(self._query, served), *map(self._judgement, judged)]))
        except OSError as error:
            if self._writable:
                _log.error("cannot write the query log", extra={"fields": {"reason": str(error)}})
            self._writable = False
        else:
            self._writable = True

    def _with_known_ids(self, served: list[ServedReply]) -> list[ServedReply]:
        """Read the ids of all results together, and return the replies; empty for now if the engine is unavailable."""
        shown = {position for reply in served for position in _positions(reply.shown)}
        missing = np.array(sorted(shown - {*self._ids}), dtype=np.int64)
        try:
            documents = self._documents.at(missing)
        except EngineUnavailable:
            self._late = served[-_MAX_LATE:]
            return []
        self._late = []
        if len(self._ids) + len(missing) > _CACHED_IDS:
            self._ids = {position: name for position, name in self._ids.items() if position in shown}
        self._ids |= zip(missing.tolist(), (document.id for document in documents), strict=True)
        return served

    def _query(self, served: ServedReply) -> bytes:
        query, observed = served.query, array("f", served.observed).tolist()
        query_filter = write_filter(query.filter) if query.filter else None
        return line_bytes(
            LoggedQuery(
                at=served.at,
                query_id=served.query_id,
                query=query.text if self._texts else hashed(query.text),
                key=served.key,
                collection=self._collection,
                release=self._release,
                filter=query_filter if self._texts or query_filter is None else hashed_filter(query_filter),
                k=query.k,
                threshold=query.threshold,
                group_by=query.group_by,
                kept=int(observed[0]) if observed else 0,
                topk=observed[1 : 1 + self._k],
                random=observed[1 + self._k :],
                shown=self._results(served.shown, served.places),
                truncated=query.truncated,
                unreadable=query.unreadable,
            )
        )

    def _shown(self, shown: bytes, places: bytes) -> list[ShownResult]:
        """Parse the results of a reply; see Reply."""
        number = len(shown) // 8
        positions, scores = _positions(shown), array("f", shown[4 * number :])
        ranks, propensities = array("i", places[: 4 * number]), array("f", places[4 * number :])
        return [
            ShownResult(id=self._ids[position], rank=rank, score=score, propensity=propensity)
            for position, score, rank, propensity in zip(positions, scores, ranks, propensities, strict=True)
        ]

    def _judgement(self, judged: JudgedResult) -> bytes:
        text = judged.query
        return line_bytes(
            LoggedJudgement(
                at=judged.at,
                query_id=judged.query_id if text is None else None,
                query=text if text is None or self._texts else hashed(text),
                document_id=judged.document_id,
                relevant=judged.relevant,
                rank=judged.rank,
                score=judged.similarity,
                key=judged.key,
                collection=self._collection,
                release=self._release,
            )
        )

    def _append(self, lines: bytes) -> None:
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                with suppress(OSError):  # a file system without locks
                    acquire(descriptor, EXCLUSIVE, _LOCK_SECONDS)
                if is_at(descriptor, self._path):  # else another file has replaced it in the meantime
                    append_lines(descriptor, lines)
                    return
            finally:
                os.close(descriptor)


def _positions(shown: bytes) -> "array[int]":
    """Parse the positions of the documents that a reply showed; see Reply."""
    return array("i", shown[: len(shown) // 2])
