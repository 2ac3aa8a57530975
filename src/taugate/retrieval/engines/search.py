"""Search of an engine's collection: the engine proposes candidates, and `similarity` scores them."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from taugate.errors import EngineUnavailable
from taugate.policy.arrays import Float32, QueryVectors, dense_of
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.engines.engine import Candidates, Collection, Positions, Rows
from taugate.retrieval.index.approximate import widened_top_k
from taugate.retrieval.index.flat import MAX_CANDIDATES, SPARE, best_of, brute_force_top_k
from taugate.retrieval.index.top_k import Candidate, DocumentScorer, DocumentSubset, Observe, TopK, unobserved
from taugate.retrieval.vectors import pair_similarity, similarity

# If the engine finds too few documents and at most this many meet the filter, all of them are read: some 10 MB at 384
# dimensions and 1 KB of text.
MAX_SCANNED = 4096

_BATCH = 64  # queries: with k + 16 = 26 candidates of 384 dimensions each, 2.5 MB of vectors


class EngineSearch:
    """One search of a collection: its filter and deadline, and the contents of all documents that it has read.

    Args:
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
        """Return the documents with the highest cosines; fewer than k if fewer meet the filter."""
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


class EngineVectors:
    """The vectors of a collection, (N, d), read by position like an array; implements Vectors.

    Attributes:
        shape: (N, d).
    """

    def __init__(self, collection: Collection, rows: int, seconds: float) -> None:
        self.shape: tuple[int, ...] = (rows, collection.dimension)
        self._collection, self._seconds = collection, seconds

    def __getitem__(self, positions: NDArray[np.int64], /) -> Float32:
        distinct, places = np.unique(positions, return_inverse=True)
        vectors = self._collection.fetch(distinct, time.monotonic() + self._seconds).vectors
        return vectors[places.reshape(positions.shape)]


class EngineIndex:
    """N documents in a collection of an engine; implements Index.

    Scores equal those of every other index to the bit, because they are computed here from the vectors that the engine
    returns. Which documents are found depends on the engine's graph, as in ApproximateIndex.
    """

    def __init__(self, collection: Collection, rows: int, seconds: float) -> None:
        self.vectors = EngineVectors(collection, rows, seconds)
        self._collection, self._seconds = collection, seconds

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return self.vectors.shape[0]

    def score(self, queries: QueryVectors, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        return pair_similarity(dense_of(queries), self.vectors, positions)

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """Return the min(k, N) most similar of the proposed documents; ties go to the lower position."""
        # The list is never shorter: it is an error if the collection returns too few, as it may while it is being
        # loaded.
        return in_batches(lambda batch: self.find(batch, k), queries, min(k, len(self)))

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See Index.search_within; meant for small subsets, because it reads the vectors of all M members."""
        return score_members(self, queries, k, within)

    def find(self, queries: QueryVectors, k: int, query_filter: Filter = (), observe: Observe = unobserved) -> TopK:
        """Search like `search`, among the documents that meet a filter evaluated by the engine."""
        # If at most k + SPARE documents meet the filter, all of them are scored and the result is exact. The same
        # happens if at most 4,096 meet the filter and the engine finds fewer than k: documents far from a query may be
        # unreachable in its graph.
        search = self.begin(query_filter, observe)
        top = search.nearest(dense_of(queries), k)
        return replace(top, candidates=search.candidates, approximate=search.approximate)

    def begin(self, query_filter: Filter, observe: Observe, listed: int = 0) -> EngineSearch:
        """Begin a search; see EngineSearch for the parameters."""
        return EngineSearch(self._collection, len(self), query_filter, self._seconds, observe, listed)

    def read(self, positions: Positions) -> Rows:
        """Return the rows at m distinct positions, (m,) int64."""
        return self._collection.fetch(positions, time.monotonic() + self._seconds)

    def find_id(self, document_id: str) -> Positions:
        """Return the position of the passage with this id or, if there is none, those of the chunks of the document."""
        # The positions are (m,) int64, ascending.
        return self._collection.find(document_id, time.monotonic() + self._seconds)


def in_batches(search: Callable[[QueryVectors], TopK], queries: QueryVectors, k: int) -> TopK:
    """Search an engine for any number of queries, a batch at a time."""
    scores, positions = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    for start in range(0, len(queries), _BATCH):
        batch = slice(start, start + _BATCH)
        results = search(queries[batch])
        scores[batch], positions[batch] = results.scores, results.positions
    return TopK(scores, positions)


def score_members(index: DocumentScorer, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
    """Return the k best documents of a small subset by scoring all of it; see Index.search_within."""
    results = [brute_force_top_k(index, queries[row : row + 1], k, within.positions) for row in range(len(queries))]
    scores, positions = zip(*results, strict=True)
    return TopK(np.stack(scores), np.stack(positions))
