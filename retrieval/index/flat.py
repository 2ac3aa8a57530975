"""Every stored vector compared with every query: exact for what is stored, in float32, float16 or int8."""

from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from retrieval.index.base import StoredIndex
from retrieval.index.gpu import MOST_NEIGHBOURS, on_gpu
from retrieval.index.kinds import QUANTIZERS, Kind, padded, padded_dimension
from retrieval.index.ranking import among_all, ranked
from retrieval.index.stored import stored
from retrieval.index.topk import MOST_CANDIDATES, SPARE, TopK
from retrieval.similarity import Float32, rounding_bound


class FlatIndex(StoredIndex):
    """FAISS proposes candidates, `similarity` scores them: no result depends on batch size, threads or device."""

    def __init__(self, index: Any, kind: Kind = "flat", dimension: int | None = None) -> None:  # noqa: ANN401
        super().__init__(index, kind, stored(index, int(dimension or index.d)))
        self._gpu = on_gpu(index) if kind == "flat" else None
        # FAISS reads int8 by another sequence of float32 operations than `stored` does.
        self._bound = rounding_bound(index.d) * (1 if kind == "flat" else 2)

    @classmethod
    def build(cls, vectors: Float32, kind: Kind = "flat") -> Self:
        """vectors: (N, d) float32 of unit length, N ≥ 1; kind: flat, flat-float16 or flat-int8."""
        vectors, given = padded(vectors, padded_dimension(kind, vectors.shape[1])), vectors.shape[1]
        dimension = vectors.shape[1]
        if kind in QUANTIZERS:
            index = faiss.IndexScalarQuantizer(dimension, QUANTIZERS[kind], faiss.METRIC_INNER_PRODUCT)
        else:
            index = faiss.IndexFlatIP(dimension)
        index.train(vectors)
        index.add(vectors)
        return cls(index, kind, given)

    def search(self, queries: Float32, k: int) -> TopK:
        """The min(k, N) most similar documents of each query.

        queries: (n, d) float32 of unit length. Ties in similarity go to the lower position.
        """
        k = min(k, len(self))
        scores = np.empty((len(queries), k), dtype=np.float32)
        positions = np.empty((len(queries), k), dtype=np.int64)
        pending = np.arange(len(queries))
        fetch = k + SPARE
        while len(pending) and fetch <= max(MOST_CANDIDATES, k + SPARE):
            fetch = min(fetch, len(self))
            top, proven = self._candidates(queries[pending], k, fetch)
            scores[pending], positions[pending] = top.scores, top.positions
            pending = pending[~proven]
            fetch *= 4
        for row in pending:
            scores[row], positions[row] = among_all(self, queries[row : row + 1], k)
        return TopK(scores, positions)

    def _candidates(self, queries: Float32, k: int, fetch: int) -> tuple[TopK, NDArray[np.bool_]]:
        """Top k of `fetch` candidates, and for which queries no document left out can belong to it."""
        searcher = self._gpu if self._gpu is not None and fetch <= MOST_NEIGHBOURS else self.faiss
        rough, found = searcher.search(padded(queries, self.faiss.d), fetch)
        top, _ = ranked(self, queries, found, k)
        proven = rough[:, -1] + self._bound < top.scores[:, -1] if fetch < len(self) else np.full(len(queries), True)
        return top, proven
