"""Exact search: FAISS proposes candidates, `similarity` scores them, and a bound proves that none is missing.

Every index scores documents by `similarity` alone, so no result depends on batch size, threads or device.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.kinds import QUANTIZERS, padded_dimension, stored_vectors
from taugate.retrieval.index.names import Kind
from taugate.retrieval.index.top_k import DocumentSubset, Scorer, TopK
from taugate.retrieval.vectors.queries import QueryVectors, dense_of
from taugate.retrieval.vectors.similarity import Float32, Vectors, pair_similarity, rounding_bound

# Candidates beyond K, so that FAISS's rounding does not push a document of the top-K out of them.
SPARE = 16
# Beyond this many candidates for one query, every document is scored, as for a corpus of copies of one text.
MAX_CANDIDATES = 1024
_BLOCK = 4096  # documents scored at a time when all are scored
MAX_NEIGHBOURS = 2048  # limit of results and of probed lists on a GPU (faiss wiki, "Faiss on the GPU")
# If the subset has fewer than one in this many documents, each is scored by `similarity`, which takes longer per
# document than FAISS, while FAISS visits every document. Both took about as long at this ratio on mixed_large;
# `--tables filters` of benchmarks/serving has a line on either side.
_ONE_IN = 128

# Proposes c candidates for each of (n, d) queries: rough scores and positions, (n, c) each, best first.
Propose = Callable[[Float32, int], tuple[Float32, NDArray[np.int64]]]


def exact_top_k(
    index: Scorer, propose: Propose, bound: float, queries: Float32, k: int, members: NDArray[np.int64] | None = None
) -> TopK:
    """Return the min(k, M) most similar documents of each query; ties go to the lower position.

    Candidates are fetched and scored until no other document can reach the K-th score, or until scoring all documents
    is cheaper.

    Args:
        index: Scores documents.
        propose: Proposes candidates among the members, with rough scores.
        bound: Largest difference between a rough score and the similarity.
        queries: (n, d) float32 of unit length.
        k: Number of documents.
        members: (M,) int64 ascending positions of the documents to search, M ≥ 1; None for all.
    """
    count = len(index) if members is None else len(members)
    k = min(k, count)
    scores = np.empty((len(queries), k), dtype=np.float32)
    positions = np.empty((len(queries), k), dtype=np.int64)
    pending = np.arange(len(queries))
    fetch = k + SPARE
    while len(pending) and fetch <= max(MAX_CANDIDATES, k + SPARE):
        fetch = min(fetch, count)
        rough, candidates = propose(queries[pending], fetch)
        top, _ = rerank(index, queries[pending], candidates, k)
        scores[pending], positions[pending] = top.scores, top.positions
        proven = rough[:, -1] + bound < top.scores[:, -1] if fetch < count else np.full(len(pending), True)
        pending = pending[~proven]
        fetch *= 4
    for row in pending:
        scores[row], positions[row] = brute_force_top_k(index, queries[row : row + 1], k, members)
    return TopK(scores, positions)


def rerank(index: Scorer, queries: Float32, candidates: NDArray[np.int64], k: int) -> tuple[TopK, Float32]:
    """Return the k most similar of each query's candidates, and the lowest similarity among them, (n,) float32.

    Args:
        index: Scores documents.
        queries: (n, d) float32.
        candidates: (n, c ≥ k) int64 positions; −1 means no candidate and scores −∞.
        k: Number of documents.
    """
    candidates = np.sort(candidates, axis=1)
    exact = index.score(queries, np.maximum(candidates, 0))
    exact[candidates < 0] = -np.inf
    return best_of(candidates, exact, k), exact.min(axis=1)


def best_of(candidates: NDArray[np.int64], scores: Float32, k: int) -> TopK:
    """Return the k most similar of each query's scored candidates; ties go to the lower position.

    Args:
        candidates: (n, c ≥ k) int64 positions, ascending in each row.
        scores: (n, c) float32.
        k: Number of documents.
    """
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    rows = np.arange(len(candidates))[:, None]
    return TopK(scores[rows, order], candidates[rows, order])


def brute_force_top_k(
    index: Scorer, query: QueryVectors, k: int, members: NDArray[np.int64] | None = None
) -> tuple[Float32, NDArray[np.int64]]:
    """Return scores and positions of one query's top-K, (min(k, M),) each, by scoring every member.

    Args:
        index: Scores documents.
        query: One query.
        k: Number of documents.
        members: (M,) int64 ascending positions of the documents to search; None for all.
    """
    members = np.arange(len(index)) if members is None else members
    scores = score_all(index, query, members)
    best = np.argsort(-scores, kind="stable")[:k]
    return scores[best], members[best]


def score_all(index: Scorer, query: QueryVectors, members: NDArray[np.int64]) -> Float32:
    """Return the scores of one query and many documents, (M,) float32, in bounded memory.

    Args:
        index: Scores documents.
        query: One query.
        members: (M,) int64 positions of the documents.
    """
    parts = np.array_split(members, len(members) // _BLOCK + 1)
    return np.concatenate([index.score(query, part[None])[0] for part in parts])


class FaissIndex:
    """Base of all indexes: N documents in an index of FAISS.

    Attributes:
        faiss: Index of FAISS.
        kind: Kind of the index.
        vectors: (N, d) stored vectors.
    """

    def __init__(self, index: Any, kind: Kind, vectors: Vectors) -> None:  # noqa: ANN401 (faiss has no types)
        self.faiss = index
        self.kind: Kind = kind
        self.vectors = vectors
        self._exhaustive = index  # compares a query with all stored vectors
        # FAISS decodes int8 with another sequence of float32 operations than `stored_vectors`.
        self._bound = rounding_bound(index.d) * (2 if kind in QUANTIZERS else 1)

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return int(self.faiss.ntotal)

    def score(self, queries: QueryVectors, positions: NDArray[np.int64]) -> Float32:
        """See Scorer.score."""
        return pair_similarity(dense_of(queries), self.vectors, positions)

    def search_within(self, queries: QueryVectors, k: int, within: DocumentSubset) -> TopK:
        """See Index.search_within; always on the CPU."""
        queries, members = dense_of(queries), within.positions
        if len(members) > max(k + SPARE, len(self) // _ONE_IN):
            propose = partial(self._scan_within, within=within)
            return exact_top_k(self, propose, self._bound, queries, k, members)
        results = [brute_force_top_k(self, queries[row : row + 1], k, members) for row in range(len(queries))]
        scores, positions = zip(*results, strict=True)
        return TopK(np.stack(scores), np.stack(positions))

    def _scan_within(self, queries: Float32, fetch: int, within: DocumentSubset) -> tuple[Float32, NDArray[np.int64]]:
        """Let FAISS propose the best of the subset by comparing the query with all of it."""
        index = self._exhaustive
        if isinstance(index, faiss.IndexIVF):
            parameters = faiss.SearchParametersIVF(sel=within.selector, nprobe=index.nlist)
        else:
            parameters = faiss.SearchParameters(sel=within.selector)
        rough, candidates = index.search(padded(queries, index.d), fetch, params=parameters)
        return rough, candidates


class FlatIndex(FaissIndex):
    """An exact index: every stored vector is compared with every query, in float32, float16 or int8.

    Args:
        index: Flat or scalar-quantised index of FAISS.
        kind: flat, flat-float16 or flat-int8.
        dimension: Dimension of a vector before padding, by default that of the index.
    """

    def __init__(self, index: Any, kind: Kind = "flat", dimension: int | None = None) -> None:  # noqa: ANN401
        super().__init__(index, kind, stored_vectors(index, int(dimension or index.d)))
        self._gpu = copy_to_gpu(index) if kind == "flat" else None

    @classmethod
    def build(cls, vectors: Float32, kind: Kind = "flat") -> Self:
        """Index vectors.

        Args:
            vectors: (N, d) float32 of unit length, N ≥ 1.
            kind: flat, flat-float16 or flat-int8.
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

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """See Searchable.search."""
        return exact_top_k(self, self._propose, self._bound, dense_of(queries), k)

    def _propose(self, queries: Float32, fetch: int) -> tuple[Float32, NDArray[np.int64]]:
        searcher = self._gpu if self._gpu is not None and fetch <= MAX_NEIGHBOURS else self.faiss
        rough, candidates = searcher.search(padded(queries, self.faiss.d), fetch)
        return rough, candidates


def padded(vectors: Float32, dimension: int) -> Float32:
    """Pad vectors, (n, d) float32, with zeros; returns (n, dimension ≥ d) float32, contiguous."""
    missing = dimension - vectors.shape[1]
    result = np.pad(vectors, ((0, 0), (0, missing))) if missing else vectors
    return np.ascontiguousarray(result, dtype=np.float32)


def gpu_count() -> int:
    """Return how many GPUs this faiss build can use."""
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def copy_to_gpu(index: Any) -> Any:  # noqa: ANN401 (faiss has no types)
    """Return a copy of an index of FAISS on the first GPU, or None if this faiss build or machine has none."""
    if not gpu_count():
        return None
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
