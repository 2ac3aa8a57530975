"""Exact search: FAISS proposes candidates, `similarity` scores them, and a limit proves that none is missing.

Every index scores documents by `similarity` alone, so no result depends on batch size, threads or device.

Codes of one byte per component propose documents ten times as fast as float32 vectors. FAISS multiplies the codes of a
query and of a document in whole numbers. How far such a product can be from the similarity follows from the rounding of
the codes alone.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Final, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.policy.arrays import Float32, QueryVectors, Vectors, dense_of
from taugate.release.names import Kind
from taugate.retrieval.hardware import GpuCopy
from taugate.retrieval.index.kinds import COMPONENTS_A_CODE, QUANTIZERS, stored_vectors
from taugate.retrieval.index.top_k import DocumentScorer, DocumentSubset, TopK
from taugate.retrieval.vectors import pair_similarity, rounding_bound

# Candidates beyond K, so that FAISS's rounding does not push a document of the top-K out of them.
SPARE = 16
# Beyond this many candidates for one query, every document is scored, as for a corpus of copies of one text.
MAX_CANDIDATES = 1024
# Further candidates, one in so many documents. They take a fiftieth of the time of a scan; without them, two of five
# queries among 1,000,000 documents need a second one.
_MORE_ONE_IN = 2048
_BLOCK = 4096  # documents scored at a time when all are scored
# Documents of a flat index that are coded when it is first searched: 100 MB and 0.5 s at d = 384.
_MAX_CODED = 1 << 18
MAX_NEIGHBOURS = 2048  # limit of results and of probed lists on a GPU (faiss wiki, "Faiss on the GPU")
# A GPU rounds the queries of flat-float16 to float16 as well: by 2⁻¹¹ of their length, and by a little for components
# below the smallest normal float16.
_QUERY_ROUNDING = 1.1 * 2.0**-11
# If the subset has fewer than one in this many documents, each is scored by `similarity`, which takes longer per
# document than FAISS, while FAISS visits every document. Both took about as long at this ratio on mixed_large;
# `--tables filters` of benchmarks/serving has a line on either side.
_ONE_IN = 128

# Vectors are padded with zeros to a multiple of these. FAISS reads scalar codes 16 at a time, and is several times
# slower for other lengths.
_MULTIPLES: dict[Kind, int] = {"flat-float16": 16, "flat-int8": 16, "hnsw": 16, "ivf-pq": COMPONENTS_A_CODE}
_MAX_CODE = 127  # of a signed byte; −128 is unused, so that the sign of a component changes nothing
_ROUNDED = 0.5 + _MAX_CODE * 2.0**-24  # largest difference of a code from its float32 quotient by the step
_CODED = 1 << 14  # documents coded at a time: 25 MB of float32 at d = 384

# Proposes c candidates for each of (n, d) queries: the highest similarity that any other document can have, (n,), and
# the positions of the candidates, (n, c). Of c = M members, all are candidates.
Propose = Callable[[Float32, int], tuple[NDArray[np.floating[Any]], NDArray[np.int64]]]


def exact_top_k(
    index: DocumentScorer,
    proposers: Sequence[Propose],
    queries: Float32,
    k: int,
    members: NDArray[np.int64] | None = None,
) -> TopK:
    """Return the min(k, M) most similar documents of each query; ties go to the lower position.

    Candidates are fetched and scored until no other document can reach the K-th score. If too many would be needed, the
    next proposer is tried, and after the last one all documents are scored.

    Args:
        proposers: Propose candidates among the members: the fastest first, the one with the closest limits last.
        members: (M,) int64 ascending positions of the documents to search, M ≥ 1; None for all.
    """
    count = len(index) if members is None else len(members)
    k = min(k, count)
    scores = np.empty((len(queries), k), dtype=np.float32)
    positions = np.empty((len(queries), k), dtype=np.int64)
    pending = np.arange(len(queries))
    for propose in proposers:
        fetch = k + SPARE + count // _MORE_ONE_IN
        while len(pending) and fetch <= max(MAX_CANDIDATES, k + SPARE + count // _MORE_ONE_IN):
            fetch = min(fetch, count)
            limits, candidates = propose(queries[pending], fetch)
            candidates = np.sort(candidates, axis=1)
            top = best_of(candidates, index.score(queries[pending], candidates), k)
            scores[pending], positions[pending] = top.scores, top.positions
            proven = limits < top.scores[:, -1] if fetch < count else np.full(len(pending), True)
            pending = pending[~proven]
            fetch *= 4
    for row in pending:
        scores[row], positions[row] = brute_force_top_k(index, queries[row : row + 1], k, members)
    return TopK(scores, positions)


def rerank(index: DocumentScorer, queries: Float32, candidates: NDArray[np.int64], k: int) -> tuple[TopK, Float32]:
    """Return the k most similar of each query's candidates, and the lowest similarity among them, (n,) float32.

    Args:
        candidates: (n, c ≥ k) int64 positions; −1 means no candidate and scores −∞.
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
    """
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    rows = np.arange(len(candidates))[:, None]
    return TopK(scores[rows, order], candidates[rows, order])


def brute_force_top_k(
    index: DocumentScorer, query: QueryVectors, k: int, members: NDArray[np.int64] | None = None
) -> tuple[Float32, NDArray[np.int64]]:
    """Return scores and positions of one query's top-K, (min(k, M),) each, by scoring every member.

    Args:
        members: (M,) int64 ascending positions of the documents to search; None for all.
    """
    members = np.arange(len(index)) if members is None else members
    scores = score_all(index, query, members)
    best = np.argsort(-scores, kind="stable")[:k]
    return scores[best], members[best]


def score_all(index: DocumentScorer, query: QueryVectors, members: NDArray[np.int64]) -> Float32:
    """Return the scores of one query and many documents, (M,) float32, in bounded memory.

    Args:
        members: (M,) int64 positions of the documents.
    """
    parts = np.array_split(members, len(members) // _BLOCK + 1)
    return np.concatenate([index.score(query, part[None])[0] for part in parts])


def padded_dimension(kind: Kind, dimension: int) -> int:
    """Return the padded dimension at which an index of a kind stores vectors of `dimension`."""
    return dimension + -dimension % _MULTIPLES.get(kind, 1)


def padded(vectors: Float32, dimension: int) -> Float32:
    """Pad vectors, (n, d) float32, with zeros; returns (n, dimension ≥ d) float32, contiguous."""
    missing = dimension - vectors.shape[1]
    result = np.pad(vectors, ((0, 0), (0, missing))) if missing else vectors
    return np.ascontiguousarray(result, dtype=np.float32)


class Int8Codes:
    """The codes of N documents: their components divided by one step for all of them, and rounded.

    FAISS stores no further number with such an index, so its argument of range statistics, unused here, has the step.
    """

    def __init__(self, index: Any, dimension: int) -> None:  # noqa: ANN401 (faiss has no types)
        self.faiss = index
        self._step = float(index.sq.rangestat_arg)
        # Largest rounding error of a component, and of the length of a document.
        self._component_error = _ROUNDED * self._step
        self._length = 1 + self._component_error * np.sqrt(dimension)
        self._bound = rounding_bound(index.d)

    @classmethod
    def build(cls, vectors: Float32) -> Self:
        """Code vectors of unit length, (N, d) float32, N ≥ 1."""
        dimension = vectors.shape[1]
        stored, kind = padded_dimension("flat-int8", dimension), QUANTIZERS["flat-int8"]
        index = faiss.IndexScalarQuantizer(stored, kind, faiss.METRIC_INNER_PRODUCT)
        index.sq.rangestat_arg = add_codes(index, vectors, _CODED)
        return cls(index, dimension)

    def propose(
        self, queries: Float32, count: int, parameters: faiss.SearchParameters | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the documents with the highest products of codes.

        Returns the highest similarity that a document besides these can have, (n,), and their positions, (n, count).

        Args:
            parameters: Parameters of FAISS, such as a subset to search.
        """
        codes, steps = query_codes(queries)
        products, candidates = self.faiss.search(padded(codes, self.faiss.d), count, params=parameters)
        lost = queries - codes * steps[:, None]
        # q·v − (t·c_q)·(s·c_v) = q·(v − s·c_v) + (q − t·c_q)·(s·c_v), by Hölder's and Cauchy's inequality.
        bounds = np.abs(queries).sum(axis=1, dtype=np.float64) * self._component_error
        bounds += np.sqrt(np.einsum("nd,nd->n", lost, lost, dtype=np.float64)) * self._length + self._bound
        return products[:, -1] * (steps * self._step) + bounds, candidates


def add_codes(index: Any, vectors: Float32, block: int) -> float:  # noqa: ANN401
    """Add the codes of vectors to an index of FAISS that stores signed bytes; returns their step.

    Args:
        vectors: (N, d) float32, N ≥ 1.
        block: Number of vectors added at a time.
    """
    step = np.float32(max(vectors.max(), -vectors.min()) / _MAX_CODE) or np.float32(1)
    for start in range(0, len(vectors), block):
        index.add(padded(np.rint(vectors[start : start + block] / step), index.d))
    return float(step)


def query_codes(queries: Float32) -> tuple[Float32, Float32]:
    """Return the codes of queries, (n, d) whole numbers from −127 to 127, and the step of each query, (n,)."""
    steps = np.abs(queries).max(axis=1) / np.float32(_MAX_CODE)
    steps[steps == 0] = 1
    return np.rint(queries / steps[:, None]), steps


class FaissIndex:
    """Base of all indexes: N documents in an index of FAISS.

    Attributes:
        vectors: (N, d) vectors that scores are computed from.
        exact: Index of these vectors if they are stored separately, because `faiss` only proposes documents; else None.
    """

    def __init__(self, index: Any, kind: Kind, vectors: Vectors, exact: "FlatIndex | None" = None) -> None:  # noqa: ANN401 (faiss has no types)
        self.faiss = index
        self.kind: Kind = kind
        self.vectors = vectors
        self.exact = exact
        self._exhaustive = exact.faiss if exact else index  # compares a query with all vectors
        # FAISS decodes rounded vectors with another sequence of float32 operations than `stored_vectors`.
        self._bound = rounding_bound(index.d) * (2 if self.stores_rounded_vectors else 1)

    @cached_property
    def gpu(self) -> GpuCopy:
        """A copy on a GPU, made by the first search there: vectors that only score documents are never copied."""
        return GpuCopy(self.faiss, self.kind)

    @property
    def stores_rounded_vectors(self) -> bool:
        """True if scores are those of vectors rounded to float16, or to int8 by an earlier version."""
        return isinstance(self._exhaustive, faiss.IndexScalarQuantizer)

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
            return exact_top_k(self, self._proposers(within), queries, k, members)
        results = [brute_force_top_k(self, queries[row : row + 1], k, members) for row in range(len(queries))]
        scores, positions = zip(*results, strict=True)
        return TopK(np.stack(scores), np.stack(positions))

    def _proposers(self, within: DocumentSubset | None) -> list[Propose]:
        """Return what proposes the best of a subset, or of all documents, by comparing the query with all of them."""
        return [partial(self._scan, parameters=_parameters(self._exhaustive, within))]

    def _scan(
        self, queries: Float32, fetch: int, parameters: faiss.SearchParameters | None
    ) -> tuple[Float32, NDArray[np.int64]]:
        index = self._exhaustive
        rough, candidates = index.search(padded(queries, index.d), fetch, params=parameters)
        return rough[:, -1] + np.float32(self._bound), candidates


class FlatIndex(FaissIndex):
    """An exact index: every stored vector is compared with every query.

    Vectors in float32 are proposed by their int8 codes, which flat-int8 stores beside the vectors.

    Args:
        index: Flat or scalar-quantised index of FAISS.
        dimension: Dimension of a vector before padding, by default that of the index.
        exact: The vectors of flat-int8; None if `index` stores what it scores.
    """

    breadth: Final = None  # all documents are compared

    def __init__(
        self,
        index: Any,  # noqa: ANN401
        kind: Kind = "flat",
        dimension: int | None = None,
        exact: "FlatIndex | None" = None,
        *,
        may_use_gpu: bool = True,
    ) -> None:
        vectors = exact.vectors if exact else stored_vectors(index, int(dimension or index.d))
        super().__init__(index, kind, vectors, exact)
        self._may_use_gpu = may_use_gpu and kind != "flat-int8"

    @classmethod
    def build(cls, vectors: Float32, kind: Kind = "flat") -> Self:
        """Index vectors; `vectors`: (N, d) float32 of unit length, N ≥ 1; `kind`: flat, flat-float16 or flat-int8."""
        dimension = vectors.shape[1]
        if kind == "flat-int8":
            return cls(Int8Codes.build(vectors).faiss, kind, dimension, cls.build(vectors))
        if kind == "flat-float16":
            stored = padded(vectors, padded_dimension(kind, dimension))
            index = faiss.IndexScalarQuantizer(stored.shape[1], QUANTIZERS[kind], faiss.METRIC_INNER_PRODUCT)
            index.train(stored)
            index.add(stored)
        else:
            index = faiss.IndexFlatIP(dimension)
            index.add(padded(vectors, dimension))
        return cls(index, kind, dimension)

    @cached_property
    def codes(self) -> Int8Codes | None:
        """The codes that propose documents; None if the vectors are rounded themselves, or too many to code at load."""
        if self.exact is not None:
            return Int8Codes(self.faiss, self.dimension)
        if isinstance(self.vectors, np.ndarray) and len(self) <= _MAX_CODED:
            return Int8Codes.build(self.vectors)
        return None

    def search(self, queries: QueryVectors, k: int) -> TopK:
        """See Searchable.search."""
        return exact_top_k(self, self._proposers(None), dense_of(queries), k)

    def _proposers(self, within: DocumentSubset | None) -> list[Propose]:
        """Put the fastest before the scan of the vectors; a GPU has no subsets."""
        proposers = super()._proposers(within)
        if within is None and self._may_use_gpu and self.gpu.index is not None:
            return [self._scan_on_gpu, *proposers]
        if self.codes is not None:
            parameters = _parameters(self.codes.faiss, within)
            return [partial(self.codes.propose, parameters=parameters), *proposers]
        return proposers

    def _scan_on_gpu(self, queries: Float32, fetch: int) -> tuple[Float32, NDArray[np.int64]]:
        on_gpu = None
        if fetch <= MAX_NEIGHBOURS:
            on_gpu = self.gpu.find(lambda copy: copy.search(padded(queries, self.faiss.d), fetch))
        if on_gpu is None:
            return self._scan(queries, fetch, None)
        rough, candidates = on_gpu
        bound = self._bound + (_QUERY_ROUNDING if self.stores_rounded_vectors else 0)
        return rough[:, -1] + np.float32(bound), candidates


def _parameters(index: Any, within: DocumentSubset | None) -> faiss.SearchParameters | None:  # noqa: ANN401
    """Return the parameters by which FAISS compares a query with a subset, or with all documents if it is None."""
    if within is None:
        return None
    if isinstance(index, faiss.IndexIVF):
        return faiss.SearchParametersIVF(sel=within.selector, nprobe=index.nlist)
    return faiss.SearchParameters(sel=within.selector)
