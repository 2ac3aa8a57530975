"""An index whose vectors and documents are in an engine: the engine proposes candidates, `similarity` scores them."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.engines.engine import Collection, Positions, Rows
from taugate.retrieval.engines.search import EngineSearch
from taugate.retrieval.index.flat import brute_force_top_k
from taugate.retrieval.index.passages import Observe, unobserved
from taugate.retrieval.index.top_k import DocumentScorer, DocumentSubset, TopK
from taugate.retrieval.vectors.queries import QueryVectors, dense_of
from taugate.retrieval.vectors.similarity import Float32, pair_similarity

_BATCH = 64  # queries: with k + 16 = 26 candidates of 384 dimensions each, 2.5 MB of vectors


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
            queries: (n, d) float32 of unit length, searched in small batches.
            k: Number of documents per query.

        Raises:
            EngineUnavailable: If the engine does not respond or proposes too few documents.
            ReleaseError: If the engine rejects the request.
        """
        return in_batches(lambda batch: self.find(batch, k), queries, min(k, len(self)))

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See Index.search_within; meant for small subsets, because it reads the vectors of all M members."""
        return score_members(self, queries, k, within)

    def find(self, queries: QueryVectors, k: int, query_filter: Filter = (), observe: Observe = unobserved) -> TopK:
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
        search = self.begin(query_filter, observe)
        top = search.nearest(dense_of(queries), k)
        return replace(top, candidates=search.candidates, approximate=search.approximate)

    def begin(self, query_filter: Filter, observe: Observe, listed: int = 0) -> EngineSearch:
        """Begin a search; see EngineSearch for the parameters."""
        return EngineSearch(self._collection, len(self), query_filter, self._seconds, observe, listed)

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


def in_batches(search: Callable[[QueryVectors], TopK], queries: QueryVectors, k: int) -> TopK:
    """Search an engine for any number of queries, a batch at a time.

    Args:
        search: Returns k documents of each query of a batch.
        queries: n queries.
        k: Number of documents.
    """
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
