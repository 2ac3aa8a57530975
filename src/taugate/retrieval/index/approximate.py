"""Approximate indexes compare a query with a part of the corpus, which is faster and almost exact."""

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.flat import MAX_NEIGHBOURS, SPARE, FaissIndex, FlatIndex, brute_force_top_k, rerank
from taugate.retrieval.index.int8 import query_codes
from taugate.retrieval.index.kinds import padded, stored_vectors
from taugate.retrieval.index.names import Kind
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.index.widening import widened_top_k
from taugate.retrieval.vectors.queries import QueryVectors, dense_of
from taugate.retrieval.vectors.similarity import Float32

# Documents that product quantisation proposes: ten times the depth that the gate evaluates. With 96 bytes per document
# of 384 dimensions, no more of the top 10 is missed than without quantisation (docs/research/gate.md).
_PROPOSED = 128


class ApproximateIndex(FaissIndex):
    """An approximate index: a graph or inverted lists of FAISS propose documents, the exact vectors rank them.

    Proposals depend on the query alone, so no result depends on batch size or threads.

    Args:
        index: Index of FAISS.
        kind: hnsw, ivf-flat or ivf-pq.
        exact: The vectors of hnsw and ivf-pq; None if `index` stores them.
    """

    def __init__(self, index: Any, kind: Kind, exact: FlatIndex | None = None) -> None:  # noqa: ANN401
        super().__init__(index, kind, exact.vectors if exact else stored_vectors(index, index.d), exact)
        if kind == "hnsw" and exact is None:
            self._exhaustive = faiss.downcast_index(index.storage)
        self._lists = None if kind == "hnsw" else FlatIndex(faiss.downcast_index(index.quantizer), may_use_gpu=False)

    @property
    def breadth(self) -> int:
        """The breadth of a search: the length of hnsw's candidate list (ef), or the number of probed lists (nprobe)."""
        return int(self.faiss.hnsw.efSearch if self.kind == "hnsw" else self.faiss.nprobe)

    @breadth.setter
    def breadth(self, value: int) -> None:
        if self.kind == "hnsw":
            self.faiss.hnsw.efSearch = value
        else:
            self.faiss.nprobe = min(value, self.faiss.nlist)

    def min_breadth(self, k: int) -> int:
        """Return the smallest useful breadth; a graph's list is never shorter than the top-k requires."""
        return k + SPARE if self.kind == "hnsw" else 1

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """Return the min(k, N) most similar of the visited documents, or of all documents if fewer were visited.

        Args:
            queries: (n, d) float32 of unit length.
            k: Number of documents per query. Ties in similarity go to the lower position.
        """
        queries, k = dense_of(queries), min(k, len(self))
        fetch = max(_PROPOSED, 4 * k) if self.kind == "ivf-pq" else k + SPARE
        top = widened_top_k(self._best, queries, k, fetch, len(self))
        for row in np.flatnonzero(np.isneginf(top.scores[:, -1])):
            top.scores[row], top.positions[row] = brute_force_top_k(self, queries[row : row + 1], k)
        return top

    def _best(self, queries: Float32, k: int, fetch: int) -> tuple[TopK, Float32]:
        return rerank(self, queries, self._propose(np.ascontiguousarray(queries), fetch), k)

    def _propose(self, queries: Float32, fetch: int) -> NDArray[np.int64]:
        candidates: NDArray[np.int64]
        if self._lists is None:
            breadth = faiss.SearchParametersHNSW(efSearch=max(self.breadth, fetch))
            stored = queries if self.exact is None else padded(query_codes(queries)[0], self.faiss.d)
            _, candidates = self.faiss.search(stored, fetch, params=breadth)
        else:  # lists are chosen by `similarity`, too: FAISS's choice among near ties depends on batch size and device
            padded_queries = padded(queries, self.faiss.d)
            nearest = self._lists.search(padded_queries, self.breadth)
            on_gpu = None

            def search(index: Any) -> Any:  # noqa: ANN401 (faiss has no types)
                index.nprobe = self.breadth
                return index.search_preassigned(padded_queries, fetch, nearest.positions, nearest.scores)

            if self.kind == "ivf-flat" and max(fetch, self.breadth) <= MAX_NEIGHBOURS:
                on_gpu = self.gpu.find(search)
            _, candidates = on_gpu or search(self.faiss)
        return candidates


AnyIndex = FlatIndex | ApproximateIndex
