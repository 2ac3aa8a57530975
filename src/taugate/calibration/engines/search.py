"""Search of a corpus that is not in memory: exactly, shard by shard, or through an engine."""

import time

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.engines.engine import Engine
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.index.flat import FlatIndex, best_of
from taugate.retrieval.index.top_k import DocumentSubset, Index, TopK
from taugate.retrieval.vectors.queries import QueryVectors, dense_of
from taugate.retrieval.vectors.similarity import Float32, StoredVectors, pair_similarity

_TIMEOUT = 120.0  # seconds for one batch of queries
_BATCH = 64  # queries: with k + 16 = 26 candidates of 384 dimensions each, 2.5 MB of vectors


def search_in_batches(index: Index, queries: QueryVectors, k: int) -> TopK:
    """Search an engine's collection for any number of queries, in small batches; see Searchable.search."""
    k = min(k, len(index))
    scores, positions = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    for start in range(0, len(queries), _BATCH):
        batch = slice(start, start + _BATCH)
        results = index.search(queries[batch], k)
        scores[batch], positions[batch] = results.scores, results.positions
    return TopK(scores, positions)


class ShardedIndex:
    """Exact search of (N, d) vectors that are read block by block; a Searchable.

    The result is that of a FlatIndex of all vectors, to the bit.
    """

    def __init__(self, vectors: StoredVectors) -> None:
        self._vectors = vectors

    def __len__(self) -> int:
        return self._vectors.shape[0]

    def score(self, queries: QueryVectors, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        return pair_similarity(dense_of(queries), self._vectors, positions)

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """See Searchable.search; reads all vectors once."""
        queries = dense_of(queries)
        best = TopK(np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64))
        for first, block in self._vectors.blocks():
            results = FlatIndex.build(block).search(queries, k)
            # Earlier blocks come first, and ties within a block are in order, so ties go to the lower position.
            scores = np.concatenate([best.scores, results.scores], axis=1)
            best = best_of(np.concatenate([best.positions, results.positions + first], axis=1), scores, k)
        return best


class ProposedIndex:
    """An engine's collection as a calibration searches it, in batches; an Index.

    Pairs are scored from the encoded vectors, which equal the uploaded ones.

    Args:
        engine: The engine that holds the collection.
        record: Record of the collection, with the breadth of its searches.
        vectors: (N, d), as uploaded.
    """

    def __init__(self, engine: Engine, record: EngineRecord, vectors: StoredVectors) -> None:
        collection = engine.collection(record.collection, record.breadth, time.monotonic() + _TIMEOUT)
        self._index = EngineIndex(collection, record.rows, _TIMEOUT)
        self._vectors = vectors

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self._index.dimension

    def __len__(self) -> int:
        return len(self._index)

    def score(self, queries: QueryVectors, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        return pair_similarity(dense_of(queries), self._vectors, positions)

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """See EngineIndex.search."""
        return search_in_batches(self._index, queries, k)

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See EngineIndex.search_within."""
        return self._index.search_within(queries, k, within)
