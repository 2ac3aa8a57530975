"""Search of a corpus that is not in memory: exactly, shard by shard, or through an engine."""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from taugate.policy.arrays import Float32, HybridVectors, QueryVectors, StoredVectors, dense_of
from taugate.release.engine import EngineRecord
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.engines.engine import Collection, Engine, Positions
from taugate.retrieval.engines.search import EngineIndex, EngineSearch, score_members
from taugate.retrieval.index.flat import FlatIndex, best_of
from taugate.retrieval.index.hybrid import HybridIndex, Scored, require_words
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.top_k import DocumentSubset, Observe, TopK
from taugate.retrieval.vectors import pair_similarity, rounding_bound, similarity

_TIMEOUT = 120.0  # seconds for one batch of queries
_QUERIES = 512  # queries compared with a block at a time: with 8,192 documents, 16 MB


class ShardedIndex:
    """Exact search of (N, d) vectors that are read block by block; an Index.

    The result is that of a FlatIndex of all vectors, to the bit.
    """

    def __init__(self, vectors: StoredVectors) -> None:
        self.stored = vectors

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self.stored.shape[1]

    def __len__(self) -> int:
        return self.stored.shape[0]

    def score(self, queries: QueryVectors, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        return pair_similarity(dense_of(queries), self.stored, positions)

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """See Searchable.search; reads all vectors once."""
        dense = dense_of(queries)
        return self.search_blocks(lambda first, block: FlatIndex.build(block).search(dense, k), len(dense), k)

    def search_blocks(self, search: Callable[[int, Float32], TopK], queries: int, k: int) -> TopK:
        """Return the k best documents of a number of queries from the k best of every block.

        Args:
            search: Searches a block, given the position of its first vector; positions in results count from there.
        """
        best = TopK(np.empty((queries, 0), np.float32), np.empty((queries, 0), np.int64))
        for first, block in self.stored.blocks():
            results = search(first, block)
            # Earlier blocks come first, and ties within a block are in order, so ties go to the lower position.
            scores = np.concatenate([best.scores, results.scores], axis=1)
            best = best_of(np.concatenate([best.positions, results.positions + first], axis=1), scores, k)
        return best

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See Index.search_within; scores the whole subset."""
        return score_members(self, queries, k, within)


class ShardedHybridIndex(HybridIndex):
    """Exact search of a ShardedIndex by a score with a lexical part; an Index.

    The result is that of a HybridIndex of all vectors, to the bit.

    Attributes:
        weight: Weight w of the share, above 0.
    """

    vectors: ShardedIndex

    def __init__(self, vectors: ShardedIndex, lexical: LexicalIndex, weight: float) -> None:
        super().__init__(vectors, lexical, weight)
        # Rounding of the cosine, then of two sums of at most 1 + w.
        self._bound = rounding_bound(vectors.dimension) + (1 + weight) * 2.0**-23

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """See Searchable.search; reads all vectors once."""
        hybrid = require_words(queries)

        def search(first: int, block: Float32) -> TopK:
            shape = len(hybrid), min(k, len(block))
            best = TopK(np.empty(shape, np.float32), np.empty(shape, np.int64))
            for start in range(0, len(hybrid), _QUERIES):
                for row, cosines in enumerate(hybrid.dense[start : start + _QUERIES] @ block.T, start):
                    top = self._best_of_block(hybrid[row : row + 1], cosines, k, first, block)
                    best.scores[row], best.positions[row] = top.scores, top.positions
            return best

        return self.vectors.search_blocks(search, len(hybrid), k)

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See Index.search_within; scores the whole subset."""
        return score_members(self, queries, k, within)

    def _best_of_block(
        self, query: HybridVectors, rough_cosines: Float32, k: int, first: int, block: Float32
    ) -> Scored:
        """Return the best of the m documents of a block; positions count from its first one.

        Args:
            rough_cosines: (m,) float32 dot products with rounding errors.
            first: Position of the block's first document.
            block: (m, d) vectors.
        """
        weighted = np.float32(self.weight) * self.lexical.range_shares(query.terms[0], first, first + len(block))
        rough = rough_cosines + weighted
        k = min(k, len(block))
        kth = np.partition(rough, len(block) - k)[len(block) - k]
        candidates = np.flatnonzero(rough >= kth - 2 * self._bound)
        cosines = similarity(query.dense, block[candidates][None])[0]
        return Scored(candidates, cosines + weighted[candidates]).best(k)


class ProposedIndex(EngineIndex):
    """An engine's collection as a calibration searches it; an Index.

    Pairs are scored from the encoded vectors, which equal the uploaded ones.

    Args:
        vectors: (N, d), as uploaded.
    """

    def __init__(self, engine: Engine, record: EngineRecord, vectors: StoredVectors) -> None:
        collection = engine.collection(record.collection, record.breadth, time.monotonic() + _TIMEOUT)
        super().__init__(collection, record.rows, _TIMEOUT)
        self._stored = vectors

    def score(self, queries: QueryVectors, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        return pair_similarity(dense_of(queries), self._stored, positions)

    def begin(self, query_filter: Filter, observe: Observe, listed: int = 0) -> EngineSearch:
        """See EngineIndex.begin."""
        return _StoredSearch(self._stored, self._collection, len(self), query_filter, observe, listed)


class _StoredSearch(EngineSearch):
    """A search that reads vectors from the encoded corpus instead of the engine."""

    def __init__(
        self,
        vectors: StoredVectors,
        collection: Collection,
        count: int,
        query_filter: Filter,
        observe: Observe,
        listed: int,
    ) -> None:
        super().__init__(collection, count, query_filter, _TIMEOUT, observe, listed)
        self._stored = vectors

    def vectors(self, positions: Positions) -> Float32:
        """See EngineSearch.vectors."""
        return self._stored[positions]
