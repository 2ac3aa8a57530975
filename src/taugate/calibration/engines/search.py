"""Searching a corpus that is not in memory: exactly, shard by shard, and through an engine."""

import time

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.engines.engine import Engine
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.index.flat import FlatIndex, best_of
from taugate.retrieval.index.top_k import DocumentSubset, Index, TopK
from taugate.retrieval.vectors.similarity import Float32, StoredVectors, pair_similarity

_ANSWER = 120.0  # seconds for some queries together
_TOGETHER = 64  # queries: at k + 16 = 26 candidates of 384 dimensions each, 2.5 MB of vectors


def search_in_turns(index: Index, queries: Float32, k: int) -> TopK:
    """Search an engine for any number of queries, a few at a time.

    Args:
        index: Of its collection. See Searchable.search.
    """
    k = min(k, len(index))
    scores, positions = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    for start in range(0, len(queries), _TOGETHER):
        some = slice(start, start + _TOGETHER)
        found = index.search(queries[some], k)
        scores[some], positions[some] = found.scores, found.positions
    return TopK(scores, positions)


class ShardedIndex:
    """Exact search of vectors that are read block by block; a Searchable.

    The result is that of a FlatIndex of all of them, to the bit.

    Attributes:
        vectors: (N, d).
    """

    def __init__(self, vectors: StoredVectors) -> None:
        self._vectors = vectors

    def __len__(self) -> int:
        return self._vectors.shape[0]

    def score(self, queries: Float32, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        return pair_similarity(queries, self._vectors, positions)

    def search(self, queries: Float32, k: int) -> TopK:
        """See Searchable.search; reads all vectors once."""
        best = TopK(np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64))
        for first, block in self._vectors.blocks():
            found = FlatIndex.build(block).search(queries, k)
            # Earlier blocks come first, and ties of a block are in order: so they go to the lower position.
            scores = np.concatenate([best.scores, found.scores], axis=1)
            best = best_of(np.concatenate([best.positions, found.positions + first], axis=1), scores, k)
        return best


class ProposedIndex:
    """The collection of an engine as calibration searches it; an Index.

    The engine proposes, a few queries at a time. Known pairs are scored from the encoded vectors, which are the same.

    Attributes:
        engine: That holds the collection.
        record: Of the collection, with the breadth of its searches.
        vectors: (N, d), as uploaded.
    """

    def __init__(self, engine: Engine, record: EngineRecord, vectors: StoredVectors) -> None:
        collection = engine.collection(record.collection, record.breadth, time.monotonic() + _ANSWER)
        self._index = EngineIndex(collection, record.rows, _ANSWER)
        self._vectors = vectors

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self._index.dimension

    def __len__(self) -> int:
        return len(self._index)

    def score(self, queries: Float32, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        return pair_similarity(queries, self._vectors, positions)

    def search(self, queries: Float32, k: int) -> TopK:
        """See EngineIndex.search."""
        return search_in_turns(self._index, queries, k)

    def search_within(self, queries: Float32, k: int, within: DocumentSubset) -> TopK:
        """See EngineIndex.search_within."""
        return self._index.search_within(queries, k, within)
