"""Approximate indexes compare a query with a part of the corpus; any index is built from vectors with the same bits."""

from collections.abc import Callable
from typing import Any, cast

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError
from taugate.policy.arrays import Float32, QueryVectors, dense_of
from taugate.release.names import CENTROIDS_A_CODE, INDEX_KINDS, POINTS_A_CENTROID, Kind
from taugate.retrieval.index.flat import (
    MAX_CANDIDATES,
    MAX_NEIGHBOURS,
    SPARE,
    FaissIndex,
    FlatIndex,
    brute_force_top_k,
    rerank,
)
from taugate.retrieval.index.kinds import (
    COMPONENTS_A_CODE,
    FAISS_TYPES,
    QUANTIZERS,
    add_codes,
    padded,
    padded_dimension,
    query_codes,
    stored_vectors,
)
from taugate.retrieval.index.top_k import TopK

# Called with (n, d) queries, k and the number of candidates to fetch. Returns the k best candidates of every query, and
# the lowest similarity among all candidates of each query, (n,) float32. A missing candidate scores −∞.
Best = Callable[[Float32, int, int], tuple[TopK, Float32]]

# Documents that product quantisation proposes: ten times the depth that the gate evaluates. With 96 bytes per document
# of 384 dimensions, no more of the top 10 is missed than without quantisation (benchmarks/decisions.md).
_PROPOSED = 128

# Edges per document: FAISS's default, in the upper half of the range that the HNSW paper recommends.
_EDGES = 32
# Candidates during the build: 100 miss more than twice as much, 400 take twice as long (benchmarks/decisions.md).
_EDGE_CANDIDATES = 200
_CODED = 1 << 17  # documents of a graph whose codes are added at a time: 200 MB of float32 at d = 384


def widened_top_k(best: Best, queries: Float32, k: int, fetch: int, count: int) -> TopK:
    """Return the k best candidates of every query; ties go to the lower position.

    If the k-th score equals that of the last candidate, another document may tie with it; if there are fewer than k
    candidates, some are missing. Such queries are repeated with four times as many candidates, up to MAX_CANDIDATES. A
    query that still has fewer than k results has a score of −∞ in its last place.

    Args:
        best: Proposes candidates and ranks them.
        queries: (n, d) float32 of unit length.
        k: Number of documents per query, at most `count`.
        fetch: Number of candidates in the first request, at least k.
        count: Number of documents in the index.
    """
    scores = np.empty((len(queries), k), dtype=np.float32)
    positions = np.empty((len(queries), k), dtype=np.int64)
    pending = np.arange(len(queries))
    max_fetch = max(MAX_CANDIDATES, fetch)
    while len(pending) and fetch <= max_fetch:
        top, lowest = best(queries[pending], k, min(fetch, count))
        scores[pending], positions[pending] = top.scores, top.positions
        last = top.scores[:, -1]
        may_tie, missing = (lowest == last) & (fetch < count), np.isneginf(last)
        pending = pending[may_tie | missing]
        fetch *= 4
    return TopK(scores, positions)


class ApproximateIndex(FaissIndex):
    """An approximate index: a graph or inverted lists of FAISS propose documents, the exact vectors rank them.

    Proposals depend on the query alone, so no result depends on batch size or threads.

    Args:
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


def build(kind: Kind, vectors: Float32) -> AnyIndex:
    """Build an index; `vectors`: (N, d) float32 of unit length, N ≥ 1; at least as many as the kind needs."""
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    if kind == "hnsw":
        return ApproximateIndex(_build_hnsw(vectors), kind, FlatIndex.build(vectors))
    if kind == "ivf-flat":
        index = _build_ivf(vectors, kind)
        index.make_direct_map()
        return ApproximateIndex(index, kind)
    if kind == "ivf-pq":
        padded_vectors = padded(vectors, padded_dimension(kind, vectors.shape[1]))
        return ApproximateIndex(_build_ivf(padded_vectors, kind), kind, FlatIndex.build(vectors))
    return FlatIndex.build(vectors, kind)


def _build_hnsw(vectors: Float32) -> Any:  # noqa: ANN401 (faiss has no types)
    """Build a graph of int8 codes on one thread; with several threads, the edges would depend on their timing."""
    dimension, codes = padded_dimension("hnsw", vectors.shape[1]), QUANTIZERS["flat-int8"]
    index = faiss.IndexHNSWSQ(dimension, codes, _EDGES, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _EDGE_CANDIDATES
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        add_codes(index, vectors, _CODED)
    finally:
        faiss.omp_set_num_threads(threads)
    return index


def _build_ivf(vectors: Float32, kind: Kind) -> Any:  # noqa: ANN401
    """Build 4 √N inverted lists (faiss wiki, "Guidelines to choose an index")."""
    count, dimension = vectors.shape
    lists = max(1, min(round(4 * np.sqrt(count)), count // POINTS_A_CENTROID))
    codes = (dimension // COMPONENTS_A_CODE, int(np.log2(CENTROIDS_A_CODE))) if kind == "ivf-pq" else ()
    quantizer = faiss.IndexFlatIP(dimension)
    index = cast("Any", FAISS_TYPES[kind])(quantizer, dimension, lists, *codes, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    return index


def subset(index: AnyIndex, kept: NDArray[np.int64]) -> AnyIndex:
    """Build an index of some of the documents of another index, with the same scores to the bit.

    Vectors that a release of 0.2 or before has rounded to int8 become exact vectors of the smaller index. A graph or
    lists are rebuilt with the same breadth and may find other documents.

    Args:
        kept: (M,) int64 ascending positions of the documents to keep, M ≥ 1.
    """
    if len(kept) < (needed := INDEX_KINDS[index.kind].min_documents):
        raise InputError(f"{len(kept)} documents are too few for {index.kind}, which needs {needed}; calibrate again")
    smaller = build(index.kind, index.vectors[kept])
    if index.breadth is not None and smaller.breadth is not None:
        smaller.breadth = index.breadth
    return smaller
