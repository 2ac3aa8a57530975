"""An index whose vectors and documents are in an engine: the engine proposes candidates, `similarity` scores them."""

import time

import numpy as np
from numpy.typing import NDArray

from taugate.errors import EngineUnavailable
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.engines.engine import Candidates, Collection, Positions, Rows
from taugate.retrieval.index.flat import MAX_CANDIDATES, SPARE, best_of, brute_force_top_k
from taugate.retrieval.index.passages import Candidate, FoundPassages, Observe, unobserved
from taugate.retrieval.index.top_k import DocumentSubset, TopK
from taugate.retrieval.index.widening import widened_top_k
from taugate.retrieval.vectors.queries import QueryVectors, dense_of
from taugate.retrieval.vectors.similarity import Float32, pair_similarity, similarity

# If the engine finds too few documents and at most this many meet the filter, all of them are read: some 10 MB at 384
# dimensions and 1 KB of text.
_MAX_SCANNED = 4096


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

    Attributes:
        vectors: Vectors of the collection.
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
        """Return the min(k, N) most similar of the proposed documents; ties go to the lower position.

        The list is never shorter: it is an error if the collection returns too few, as it may while it is being loaded.

        Args:
            queries: (n, d) float32 of unit length.
            k: Number of documents per query.

        Raises:
            EngineUnavailable: If the engine does not respond or proposes too few documents.
            ReleaseError: If the engine rejects the request.
        """
        return self.find(dense_of(queries), k).top

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See Index.search_within; meant for small subsets, because it reads the vectors of all M members."""
        members = within.positions
        results = [brute_force_top_k(self, queries[row : row + 1], k, members) for row in range(len(queries))]
        scores, positions = zip(*results, strict=True)
        return TopK(np.stack(scores), np.stack(positions))

    def find(self, queries: Float32, k: int, query_filter: Filter = (), observe: Observe = unobserved) -> FoundPassages:
        """Search like `search`, among the documents that meet a filter evaluated by the engine.

        If at most k + SPARE documents meet the filter, all of them are scored and the result is exact. The same happens
        if at most 4,096 meet the filter and the engine finds fewer than k: documents far from a query may be
        unreachable in its graph.

        Args:
            queries: (n, d) float32 of unit length.
            k: Number of documents per query; fewer if fewer meet the filter.
            query_filter: Filter; empty for all documents.
            observe: Receives the stages "engine" and "rescore", once per request to the engine.

        Raises:
            InputError: If the engine cannot compare a value of the filter exactly.
            EngineUnavailable: If the engine does not respond or proposes too few documents.
            ReleaseError: If the engine rejects the request.
        """
        deadline = time.monotonic() + self._seconds
        count, candidates = len(self), dict[int, Candidate]()
        k = min(k, count)
        if query_filter and (exact := self._all_of(queries, k, query_filter, k + SPARE, deadline, observe)):
            return exact

        def best(block: Float32, k: int, fetch: int) -> tuple[TopK, Float32]:
            start = time.perf_counter()
            proposed = self._collection.propose(block, fetch, query_filter, deadline)
            answered = time.perf_counter()
            candidates.update(_by_position(proposed))
            ranked = _ranked(block, proposed, k)
            observe("engine", answered - start)
            observe("rescore", time.perf_counter() - answered)
            return ranked

        top = widened_top_k(best, queries, k, k + SPARE, count)
        if np.isneginf(top.scores[:, -1]).any():
            if query_filter and (exact := self._all_of(queries, k, query_filter, _MAX_SCANNED, deadline, observe)):
                return exact
            raise EngineUnavailable(
                f"{self._collection.name}: returned fewer than {k} documents when {MAX_CANDIDATES} were requested; "
                "check that it is loaded and complete, or increase the search breadth"
            )
        return FoundPassages(top, candidates, approximate=bool(query_filter))

    def read(self, positions: Positions) -> Rows:
        """Return the rows at m distinct positions, (m,) int64.

        Raises:
            EngineUnavailable: If the engine does not respond.
            ReleaseError: If a row is missing or the engine rejects the request.
        """
        return self._collection.fetch(positions, time.monotonic() + self._seconds)

    def find_id(self, document_id: str) -> Positions:
        """Return the position of the passage with this id or, if there is none, those of the chunks of the document.

        The positions are (m,) int64, ascending.
        """
        return self._collection.find(document_id, time.monotonic() + self._seconds)

    def _all_of(
        self, queries: Float32, k: int, query_filter: Filter, limit: int, deadline: float, observe: Observe
    ) -> FoundPassages | None:
        """Score all documents that meet a filter; None if there are more than `limit`."""
        start = time.perf_counter()
        members = self._collection.where(query_filter, limit + 1, deadline)
        observe("engine", time.perf_counter() - start)
        if len(members) > limit:
            return None
        start = time.perf_counter()
        rows = self._collection.fetch(members, deadline)
        observe("engine", time.perf_counter() - start)
        # One query at a time: a joint computation would copy the vectors for each query.
        scores = np.concatenate([similarity(query[None], rows.vectors[None]) for query in queries])
        top = best_of(np.broadcast_to(members[None], scores.shape), scores, k)
        contents = map(Candidate, rows.vectors, rows.documents)
        return FoundPassages(top, dict(zip(members.tolist(), contents, strict=True)))


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
