"""Every stored vector compared with every query: exact for what is stored, in float32, float16 or int8."""

from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.base import StoredIndex
from taugate.retrieval.index.complete import complete
from taugate.retrieval.index.gpu import MOST_NEIGHBOURS, on_gpu
from taugate.retrieval.index.kinds import QUANTIZERS, Kind, padded, padded_dimension
from taugate.retrieval.index.stored import stored
from taugate.retrieval.index.topk import TopK
from taugate.retrieval.vectors.similarity import Float32


class FlatIndex(StoredIndex):
    """FAISS proposes candidates, `similarity` scores them: no result depends on batch size, threads or device."""

    def __init__(self, index: Any, kind: Kind = "flat", dimension: int | None = None) -> None:  # noqa: ANN401
        super().__init__(index, kind, stored(index, int(dimension or index.d)))
        self._gpu = on_gpu(index) if kind == "flat" else None

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
        return complete(self, self._candidates, self._bound, queries, k)

    def _candidates(self, queries: Float32, fetch: int) -> tuple[Float32, NDArray[np.int64]]:
        searcher = self._gpu if self._gpu is not None and fetch <= MOST_NEIGHBOURS else self.faiss
        rough, found = searcher.search(padded(queries, self.faiss.d), fetch)
        return rough, found
