"""The flat index: every stored vector is compared with every query, exactly, in float32, float16 or int8."""

from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.base import MOST_NEIGHBOURS, FaissIndex, copy_to_gpu
from taugate.retrieval.index.exact import exact_top_k
from taugate.retrieval.index.kinds import QUANTIZERS, Kind, padded, padded_dimension
from taugate.retrieval.index.stored_vectors import stored_vectors
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.vectors.similarity import Float32


class FlatIndex(FaissIndex):
    """An exact index: FAISS proposes candidates, `similarity` scores them.

    So no result depends on batch size, threads or device.

    index: a flat or scalar-quantised index of FAISS. kind: flat, flat-float16 or flat-int8. dimension: length of a
    vector before padding, by default that of the index.
    """

    def __init__(self, index: Any, kind: Kind = "flat", dimension: int | None = None) -> None:  # noqa: ANN401
        super().__init__(index, kind, stored_vectors(index, int(dimension or index.d)))
        self._gpu = copy_to_gpu(index) if kind == "flat" else None

    @classmethod
    def build(cls, vectors: Float32, kind: Kind = "flat") -> Self:
        """Index vectors.

        vectors: (N, d) float32 of unit length, N ≥ 1. kind: flat, flat-float16 or flat-int8.
        """
        dimension = vectors.shape[1]
        stored = padded(vectors, padded_dimension(kind, dimension))
        if kind in QUANTIZERS:
            index = faiss.IndexScalarQuantizer(stored.shape[1], QUANTIZERS[kind], faiss.METRIC_INNER_PRODUCT)
        else:
            index = faiss.IndexFlatIP(stored.shape[1])
        index.train(stored)
        index.add(stored)
        return cls(index, kind, dimension)

    def search(self, queries: Float32, k: int) -> TopK:
        """See Searchable.search."""
        return exact_top_k(self, self._propose, self._bound, queries, k)

    def _propose(self, queries: Float32, fetch: int) -> tuple[Float32, NDArray[np.int64]]:
        searcher = self._gpu if self._gpu is not None and fetch <= MOST_NEIGHBOURS else self.faiss
        rough, found = searcher.search(padded(queries, self.faiss.d), fetch)
        return rough, found
