"""A part of the corpus compared with a query: near exact, and faster."""

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.flat import MOST_NEIGHBOURS, FlatIndex, StoredIndex, on_gpu
from taugate.retrieval.index.kinds import Kind, padded, stored
from taugate.retrieval.index.top_k import MOST_CANDIDATES, SPARE, TopK, among, ranked
from taugate.retrieval.vectors.similarity import Float32

# Documents that product quantisation proposes: ten times the depth that the gate judges at; with 96 bytes a document
# of 384 dimensions no more of the top 10 is missed than without quantisation (docs/benchmarks/gate.md).
_PROPOSED = 128


class ApproximateIndex(StoredIndex):
    """A graph (hnsw) or inverted lists (ivf-flat, ivf-pq) of FAISS propose documents, the exact vectors rank them.

    What is proposed to a query depends on the query alone, so that no result depends on batch size or threads.
    """

    def __init__(self, index: Any, kind: Kind, vectors: FlatIndex | None = None) -> None:  # noqa: ANN401
        super().__init__(index, kind, vectors.vectors if vectors else stored(index, index.d))
        self.exact = vectors
        if kind != "ivf-flat":  # whose own lists hold the vectors
            self._whole = vectors.faiss if vectors else faiss.downcast_index(index.storage)
        self._lists = None if kind == "hnsw" else FlatIndex(faiss.downcast_index(index.quantizer))
        # On a GPU FAISS chooses the lists itself, by float32: among near ties, others may be looked at than here.
        self._gpu = on_gpu(index) if kind == "ivf-flat" else None

    @property
    def breadth(self) -> int:
        """How much of the corpus is looked at: the length of hnsw's list of candidates (ef), of lists (nprobe)."""
        return int(self.faiss.hnsw.efSearch if self.kind == "hnsw" else self.faiss.nprobe)

    @breadth.setter
    def breadth(self, value: int) -> None:
        if self.kind == "hnsw":
            self.faiss.hnsw.efSearch = value
        else:
            self.faiss.nprobe = min(value, self.faiss.nlist)

    def least_breadth(self, k: int) -> int:
        """A graph is never searched with a shorter list than it takes for the top-k."""
        return k + SPARE if self.kind == "hnsw" else 1

    def search(self, queries: Float32, k: int) -> TopK:
        """The min(k, N) most similar documents of those looked at, and of all where these are fewer.

        queries: (n, d) float32 of unit length. Ties in similarity go to the lower position.
        """
        k = min(k, len(self))
        scores = np.empty((len(queries), k), dtype=np.float32)
        positions = np.empty((len(queries), k), dtype=np.int64)
        pending = np.arange(len(queries))
        fetch = max(_PROPOSED, 4 * k) if self.kind == "ivf-pq" else k + SPARE
        most = max(MOST_CANDIDATES, fetch)
        while len(pending) and fetch <= most:
            found = self._proposed(np.ascontiguousarray(queries[pending]), min(fetch, len(self)))
            top, lowest = ranked(self, queries[pending], found, k)
            scores[pending], positions[pending] = top.scores, top.positions
            last = top.scores[:, -1]
            pending = pending[
                (lowest == last) & (fetch < len(self)) | np.isneginf(last)
            ]  # others may tie, or are missing
            fetch *= 4
        for row in np.flatnonzero(np.isneginf(scores[:, -1])):
            scores[row], positions[row] = among(self, queries[row : row + 1], k)
        return TopK(scores, positions)

    def _proposed(self, queries: Float32, fetch: int) -> NDArray[np.int64]:
        found: NDArray[np.int64]
        if self._lists is None:
            breadth = faiss.SearchParametersHNSW(efSearch=max(self.breadth, fetch))
            _, found = self.faiss.search(queries, fetch, params=breadth)
        elif self._gpu is not None and max(fetch, self.breadth) <= MOST_NEIGHBOURS:
            self._gpu.nprobe = self.breadth
            _, found = self._gpu.search(queries, fetch)
        else:  # the lists by similarity, too: FAISS's own choice among near ties differs with the size of a batch
            whole = padded(queries, self.faiss.d)
            nearest = self._lists.search(whole, self.breadth)
            _, found = self.faiss.search_preassigned(whole, fetch, nearest.positions, nearest.scores)
        return found
