"""What every index here shares: a FAISS index with the vectors it stores, scored exactly, and searched in a subset."""

from functools import partial
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.exact import SPARE, brute_force_top_k, exact_top_k
from taugate.retrieval.index.kinds import QUANTIZERS, Kind, padded
from taugate.retrieval.index.top_k import DocumentSubset, TopK
from taugate.retrieval.vectors.similarity import Float32, Vectors, pair_similarity, rounding_bound

MOST_NEIGHBOURS = 2048  # a query, and lists probed, on a GPU (faiss wiki, "Faiss on the GPU", limitations)
# Where fewer than one document in so many are in the subset, each is scored by itself: `similarity` takes longer than
# FAISS for one that it scores, and FAISS passes over each that it does not. About where both took as long on
# mixed_large; `--tables filters` of benchmarks/serving has a line on either side.
_ONE_IN = 128


class FaissIndex:
    """N documents of one dimension in an index of FAISS.

    index: the index of FAISS. kind: its kind, by name. vectors: (N, d), reads what is stored of the documents.
    """

    def __init__(self, index: Any, kind: Kind, vectors: Vectors) -> None:  # noqa: ANN401 (faiss has no types)
        self.faiss = index
        self.kind = kind
        self.vectors = vectors
        self._exhaustive = index  # compares a query with everything that is stored
        # FAISS reads int8 by another sequence of float32 operations than `stored_vectors` does.
        self._bound = rounding_bound(index.d) * (2 if kind in QUANTIZERS else 1)

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return int(self.faiss.ntotal)

    def score(self, queries: Float32, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        return pair_similarity(queries, self.vectors, positions)

    def search_within(self, queries: Float32, k: int, within: DocumentSubset) -> TopK:
        """See Index.search_within; always on the CPU."""
        members = within.positions
        if len(members) > max(k + SPARE, len(self) // _ONE_IN):
            propose = partial(self._scan_within, within=within)
            return exact_top_k(self, propose, self._bound, queries, k, members)
        found = [brute_force_top_k(self, queries[row : row + 1], k, members) for row in range(len(queries))]
        scores, positions = zip(*found, strict=True)
        return TopK(np.stack(scores), np.stack(positions))

    def _scan_within(self, queries: Float32, fetch: int, within: DocumentSubset) -> tuple[Float32, NDArray[np.int64]]:
        """Let FAISS propose the best of the subset, by comparing with all of it."""
        index = self._exhaustive
        if isinstance(index, faiss.IndexIVF):
            parameters = faiss.SearchParametersIVF(sel=within.selector, nprobe=index.nlist)
        else:
            parameters = faiss.SearchParameters(sel=within.selector)
        rough, found = index.search(padded(queries, index.d), fetch, params=parameters)
        return rough, found


def gpu_count() -> int:
    """Return how many GPUs this faiss build can use."""
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def copy_to_gpu(index: Any) -> Any:  # noqa: ANN401 (faiss has no types)
    """Return a copy of an index of FAISS on the first GPU, or None where this faiss build or machine has none."""
    if not gpu_count():
        return None
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
