"""Indexes of any kind: built from vectors, approximate ones too, written, and mapped into memory after a check."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, cast

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError, ReleaseError
from taugate.policy.arrays import Float32, QueryVectors, dense_of
from taugate.release.names import CENTROIDS_A_CODE, INDEX, INDEX_KINDS, POINTS_A_CENTROID, VECTORS, Kind
from taugate.retrieval.index.flat import (
    MAX_CANDIDATES,
    MAX_NEIGHBOURS,
    SPARE,
    FaissIndex,
    FlatIndex,
    add_codes,
    brute_force_top_k,
    padded,
    padded_dimension,
    query_codes,
    rerank,
)
from taugate.retrieval.index.kinds import (
    COMPONENTS_A_CODE,
    FAISS_TYPES,
    FLOAT32_GRAPH,
    QUANTIZERS,
    ROUNDED_INT8,
    proposes_by_codes,
    stored_vectors,
)
from taugate.retrieval.index.top_k import Index, TopK

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

_MAX_BREADTH = 4096  # for a graph of fewer documents: four times the largest breadth that calibration tries
# FAISS computes 256 distances for each centroid's groups of COMPONENTS_A_CODE numbers, 4 bytes each.
_TABLE = 256 // COMPONENTS_A_CODE
_READING = Lock()  # FAISS's limits on reading apply to the whole process


def widened_top_k(best: Best, queries: Float32, k: int, fetch: int, count: int) -> TopK:
    """Return the k best candidates of every query, `fetch` ≥ k at first; ties go to the lower position.

    If the k-th score equals that of the last candidate, another document may tie with it; if there are fewer than k
    candidates, some are missing. Such queries are repeated with four times as many candidates, up to MAX_CANDIDATES. A
    query that still has fewer than k results has a score of −∞ in its last place.
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
        """Return the min(k, N) most similar of the visited documents, or of all documents if fewer were visited."""
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
    """Build an index of the M ≥ 1 documents at some ascending positions, with the same scores to the bit.

    Vectors that a release of 0.2 or before has rounded to int8 become exact vectors of the smaller index. A graph or
    lists are rebuilt with the same breadth and may find other documents.
    """
    if len(kept) < (needed := INDEX_KINDS[index.kind].min_documents):
        raise InputError(f"{len(kept)} documents are too few for {index.kind}, which needs {needed}; calibrate again")
    smaller = build(index.kind, index.vectors[kept])
    if index.breadth is not None and smaller.breadth is not None:
        smaller.breadth = index.breadth
    return smaller


def save(index: Index, folder: Path) -> None:
    """Write an index to INDEX in a folder and, if its exact vectors are separate, these to VECTORS."""
    if not isinstance(index, AnyIndex):
        raise TypeError(f"{type(index).__name__} has no files")
    _write(index.faiss, folder / INDEX)
    if index.exact is not None:
        _write(index.exact.faiss, folder / VECTORS)


def sizes(index: AnyIndex) -> tuple[int, int]:
    """Return the size of the file that every search reads, and of all files, in bytes."""
    searched = _size(index.faiss)
    return searched, searched + (0 if index.exact is None else _size(index.exact.faiss))


def load_index(folder: Path, kind: Kind, dimension: int) -> AnyIndex:
    """Map the files of an index into memory; `dimension`: dimension of a query's vector."""
    path = folder / INDEX
    index = _read(path, kind, dimension)
    exact = FlatIndex(_read(folder / VECTORS, "flat", dimension)) if proposes_by_codes(index, kind) else None
    if exact is not None and len(exact) != index.ntotal:
        raise ReleaseError(f"{path}: has {index.ntotal} documents, {VECTORS} {len(exact)}; calibrate again")
    if kind in QUANTIZERS or kind == "flat":
        return FlatIndex(index, kind, dimension, exact)
    if not _has_valid_breadth(index, kind):
        raise ReleaseError(f"{path}: has no valid search breadth; calibrate again")
    if kind == "ivf-flat" and index.direct_map.type != faiss.DirectMap.Array:
        raise ReleaseError(f"{path}: has no map from documents to lists; calibrate again")
    if kind != "hnsw" and not lists_hold_every_document(index):
        raise ReleaseError(f"{path}: its lists do not hold every document once; calibrate again")
    return ApproximateIndex(index, kind, exact)


def lists_hold_every_document(index: Any) -> bool:  # noqa: ANN401 (faiss has no types)
    """Return whether the inverted lists of an IVF index hold every document once, at the place that its map names."""
    # A search of FAISS trusts both. The map is optional.
    lists, count = index.invlists, int(index.ntotal)
    if lists.compute_ntotal() != count:  # lists cannot be longer than the file, but the count is arbitrary
        return False
    places = np.full(count, -1, dtype=np.int64)
    for number in range(index.nlist):
        size = lists.list_size(number)
        positions = faiss.rev_swig_ptr(lists.get_ids(number), size) if size else np.empty(0, np.int64)
        if ((positions < 0) | (positions >= count)).any():
            return False
        places[positions] = (number << 32) | np.arange(len(positions))  # the encoding of FAISS's map
    mapped = faiss.vector_to_array(index.direct_map.array)
    return bool((places >= 0).all()) and (not len(mapped) or np.array_equal(mapped, places))


def _has_valid_breadth(index: Any, kind: Kind) -> bool:  # noqa: ANN401
    if kind == "hnsw":
        return bool(1 <= index.hnsw.efSearch <= max(index.ntotal, _MAX_BREADTH))
    return bool(1 <= index.nprobe <= index.nlist)


def _read(path: Path, kind: Kind, dimension: int) -> Any:  # noqa: ANN401 (faiss has no types)
    try:
        with _limited_reading(path.stat().st_size * (_TABLE if kind == "ivf-pq" else 1)):
            index: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except (OSError, RuntimeError, MemoryError) as error:
        raise ReleaseError(f"{path}: FAISS cannot read it as {kind}; calibrate again") from error
    if not (_has_expected_types(index, kind) and index.ntotal and index.d):
        raise ReleaseError(f"{path}: not a {kind} inner-product index with vectors; calibrate again")
    if index.d != (dimension if type(index) is FLOAT32_GRAPH else padded_dimension(kind, dimension)):
        raise ReleaseError(f"{path}: has dimension {index.d}, not the {dimension} of the queries; calibrate again")
    return index


@contextmanager
def _limited_reading(size: int) -> Iterator[None]:
    """Limit what FAISS allocates from a file to `size` bytes, whatever the file claims."""
    if not hasattr(faiss, "set_deserialization_loop_limit"):  # FAISS before 1.15
        yield
        return
    with _READING:
        before = faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()
        faiss.set_deserialization_vector_byte_limit(size)
        faiss.set_deserialization_loop_limit(size)
        try:
            yield
        finally:
            faiss.set_deserialization_vector_byte_limit(before[0])
            faiss.set_deserialization_loop_limit(before[1])


def _has_expected_types(index: Any, kind: Kind) -> bool:  # noqa: ANN401
    """Return whether an index and its parts have exactly the types that `build` creates; FAISS has subclasses."""
    types = (FAISS_TYPES[kind], FLOAT32_GRAPH) if kind == "hnsw" else (FAISS_TYPES[kind],)
    if type(index) not in types or index.metric_type != faiss.METRIC_INNER_PRODUCT:
        return False
    if kind == "flat":
        return True
    if kind == "flat-int8":
        step = index.sq.rangestat_arg
        return bool(index.sq.qtype == ROUNDED_INT8 or (index.sq.qtype == QUANTIZERS[kind] and 0 < step < np.inf))
    if kind in QUANTIZERS:
        return bool(index.sq.qtype == QUANTIZERS[kind])
    part, count = (index.storage, index.ntotal) if kind == "hnsw" else (index.quantizer, index.nlist)
    stored = faiss.downcast_index(part)
    if type(index) is faiss.IndexHNSWSQ:
        is_expected = type(stored) is faiss.IndexScalarQuantizer and stored.sq.qtype == QUANTIZERS["flat-int8"]
    else:
        is_expected = type(stored) is faiss.IndexFlatIP
    return is_expected and (stored.d, stored.ntotal) == (index.d, count)


def _size(index: Any) -> int:  # noqa: ANN401
    written = 0

    def count(part: bytes) -> int:
        nonlocal written
        written += len(part)
        return len(part)

    faiss.write_index(index, faiss.PyCallbackIOWriter(count))
    return written


def _write(index: Any, path: Path) -> None:  # noqa: ANN401
    """Write through a Python file, which reports a full disk."""
    with path.open("wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))
