"""One search of an engine's collection: its requests, its filter, and what it has read."""

import time

import numpy as np

from taugate.errors import EngineUnavailable
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.engines.engine import Candidates, Collection, Positions
from taugate.retrieval.index.flat import MAX_CANDIDATES, SPARE, best_of
from taugate.retrieval.index.passages import Observe
from taugate.retrieval.index.top_k import Candidate, TopK
from taugate.retrieval.index.widening import widened_top_k
from taugate.retrieval.vectors.similarity import Float32, similarity

# If the engine finds too few documents and at most this many meet the filter, all of them are read: some 10 MB at 384
# dimensions and 1 KB of text.
MAX_SCANNED = 4096


class EngineSearch:
    """One search of a collection: its filter and deadline, and the contents of all documents that it has read.

    Attributes:
        candidates: Contents by position.
        approximate: Whether documents that meet the filter may be missing.
        members: (m,) int64 ascending positions of all documents that meet the filter; None if they were not listed.

    Args:
        collection: Collection to search.
        count: Number N of its documents.
        query_filter: Filter that the engine evaluates; empty for all documents.
        seconds: Timeout of all requests together.
        observe: Receives the stages "engine" and "rescore", once per request to the engine.
        listed: If at most this many documents meet the filter, their positions are requested first.
    """

    def __init__(
        self,
        collection: Collection,
        count: int,
        query_filter: Filter,
        seconds: float,
        observe: Observe,
        listed: int = 0,
    ) -> None:
        self.candidates: dict[int, Candidate] = {}
        self.approximate = bool(query_filter)
        self._collection, self._count = collection, count
        self._filter, self._observe = query_filter, observe
        self._deadline = time.monotonic() + seconds
        self._listed, self._limit = listed, -1
        self.members: Positions | None = None

    def nearest(self, queries: Float32, k: int) -> TopK:
        """Return the documents with the highest cosines; fewer than k if fewer meet the filter.

        Args:
            queries: (n, d) float32 of unit length.
            k: Number of documents per query.

        Raises:
            EngineUnavailable: If the engine does not respond or proposes too few documents.
            ReleaseError: If the engine rejects the request.
        """
        k = min(k, self._count)
        members = self._list_members(max(k + SPARE, self._listed)) if self._filter else None
        if members is not None and len(members) <= k + SPARE:
            return self._all_of(queries, k, members)

        def best(block: Float32, k: int, fetch: int) -> tuple[TopK, Float32]:
            start = time.perf_counter()
            proposed = self._collection.propose(block, fetch, self._filter, self._deadline)
            answered = time.perf_counter()
            self.candidates.update(_by_position(proposed))
            ranked = _ranked(block, proposed, k)
            self._observe("engine", start, answered)
            self._observe("rescore", answered, time.perf_counter())
            return ranked

        top = widened_top_k(best, queries, k, k + SPARE, self._count)
        if np.isneginf(top.scores[:, -1]).any():
            members = self._list_members(MAX_SCANNED) if self._filter else None
            if members is not None:
                return self._all_of(queries, k, members)
            raise EngineUnavailable(
                f"{self._collection.name}: returned fewer than {k} documents when {MAX_CANDIDATES} were requested; "
                "check that it is loaded and complete, or increase the search breadth"
            )
        return top

    def vectors(self, positions: Positions) -> Float32:
        """Return the vectors at m distinct positions, (m, d) float32, after reading the rows that are missing."""
        missing = np.array([position for position in positions.tolist() if position not in self.candidates], np.int64)
        if len(missing):
            start = time.perf_counter()
            rows = self._collection.fetch(missing, self._deadline)
            self._observe("engine", start, time.perf_counter())
            self.candidates.update(zip(missing.tolist(), map(Candidate, rows.vectors, rows.documents), strict=True))
        vectors = [self.candidates[position].vector for position in positions.tolist()]
        return np.array(vectors, dtype=np.float32).reshape(len(positions), self._collection.dimension)

    @property
    def has_unlisted_members(self) -> bool:
        """Whether only the engine knows which documents meet the filter."""
        return bool(self._filter) and self.members is None

    def meeting(self, positions: Positions) -> Positions:
        """Ask the engine which of some documents meet the filter; returns their positions, (m,) int64 ascending."""
        if not len(positions):
            return positions
        start = time.perf_counter()
        met = self._collection.where(self._filter, len(positions), self._deadline, positions)
        self._observe("engine", start, time.perf_counter())
        return met

    def _list_members(self, limit: int) -> Positions | None:
        """Return all documents that meet the filter, (m,) int64 ascending; None if there are more than `limit`."""
        if self.members is None and limit > self._limit:
            start = time.perf_counter()
            members = self._collection.where(self._filter, limit + 1, self._deadline)
            self._observe("engine", start, time.perf_counter())
            self._limit = limit
            self.members = members if len(members) <= limit else None
        return self.members

    def _all_of(self, queries: Float32, k: int, members: Positions) -> TopK:
        """Score all documents that meet the filter."""
        self.approximate = False
        vectors = self.vectors(members)
        # One query at a time: a joint computation would copy the vectors for each query.
        scores = np.concatenate([similarity(query[None], vectors[None]) for query in queries])
        return best_of(np.broadcast_to(members[None], scores.shape), scores, k)


def _by_position(proposed: Candidates) -> dict[int, Candidate]:
    return {
        position: Candidate(vector, proposed.documents[position])
        for row, vectors in zip(proposed.positions.tolist(), proposed.vectors, strict=True)
        for position, vector in zip(row, vectors, strict=True)
        if position >= 0
    }


def _ranked(queries: Float32, proposed: Candidates, k: int) -> tuple[TopK, Float32]:
    """Rank candidates by similarity; see widening.Best."""
    order = np.argsort(proposed.positions, axis=1, kind="stable")
    rows = np.arange(len(order))[:, None]
    positions = proposed.positions[rows, order]
    scores = similarity(queries, proposed.vectors[rows, order])
    scores[positions < 0] = -np.inf
    return best_of(positions, scores, k), scores.min(axis=1)
