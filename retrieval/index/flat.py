"""Every stored vector compared with every query: exact for what is stored, in float32, float16 or int8."""

from functools import partial
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.kinds import QUANTIZERS, Kind, padded, padded_dimension, stored
from taugate.retrieval.index.top_k import SPARE, TopK, Within, among, complete
from taugate.retrieval.vectors.similarity import Float32, Vectors, pair_similarity, rounding_bound

MOST_NEIGHBOURS = 2048  # a query, and lists probed (faiss wiki, "Faiss on the GPU", limitations)


def gpus() -> int:
    """GPUs that this faiss build can use."""
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def on_gpu(index: Any) -> Any:  # noqa: ANN401 (faiss has no types)
    """A copy of `index` on the first GPU, or None where this faiss build or machine has none."""
    if not gpus():
        return None
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)


# Where fewer than one document in so many may be found, each is scored by itself: `similarity` takes longer than FAISS
# for one that it scores, and FAISS passes over each that it does not. About where both took as long on mixed_large;
# `--tables filters` of benchmarks/serving has a line on either side.
_ONE_IN = 128


class StoredIndex:
    """N documents of one dimension; `vectors` reads what is stored of them."""

    def __init__(self, index: Any, kind: Kind, vectors: Vectors) -> None:  # noqa: ANN401 (faiss has no types)
        self.faiss = index
        self.kind = kind
        self.vectors = vectors
        self._whole = index  # what compares a query with all that is stored
        # FAISS reads int8 by another sequence of float32 operations than `stored` does.
        self._bound = rounding_bound(index.d) * (2 if kind in QUANTIZERS else 1)

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return int(self.faiss.ntotal)

    def score(self, queries: Float32, positions: NDArray[np.int64]) -> Float32:
        """Similarity of query i with the documents at `positions[i]`, (n, c)."""
        return pair_similarity(queries, self.vectors, positions)

    def search_within(self, queries: Float32, k: int, within: Within) -> TopK:
        """The min(k, M) most similar of the M documents in `within`, exactly, whatever the kind; M may be 0.

        queries: (n, d) float32 of unit length. Ties in similarity go to the lower position. Always on the CPU.
        """
        members = within.positions
        if len(members) > max(k + SPARE, len(self) // _ONE_IN):
            propose = partial(self._scan, within=within)
            return complete(self, propose, self._bound, queries, k, members)
        found = [among(self, queries[row : row + 1], k, members) for row in range(len(queries))]
        scores, positions = zip(*found, strict=True)
        return TopK(np.stack(scores), np.stack(positions))

    def _scan(self, queries: Float32, fetch: int, within: Within) -> tuple[Float32, NDArray[np.int64]]:
        """Everything stored that is within."""
        whole = self._whole
        if isinstance(whole, faiss.IndexIVF):
            parameters = faiss.SearchParametersIVF(sel=within.selector, nprobe=whole.nlist)
        else:
            parameters = faiss.SearchParameters(sel=within.selector)
        rough, found = whole.search(padded(queries, whole.d), fetch, params=parameters)
        return rough, found


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
