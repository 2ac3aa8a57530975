"""Builds an index from vectors, with the same bits for the same vectors."""

from typing import Any, cast

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError
from taugate.retrieval.index.approximate import AnyIndex, ApproximateIndex
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.int8 import add_codes
from taugate.retrieval.index.kinds import COMPONENTS_A_CODE, FAISS_TYPES, QUANTIZERS, padded, padded_dimension
from taugate.retrieval.index.names import CENTROIDS_A_CODE, INDEX_KINDS, POINTS_A_CENTROID, Kind
from taugate.retrieval.vectors.similarity import Float32

# Edges per document: FAISS's default, in the upper half of the range that the HNSW paper recommends.
_EDGES = 32
# Candidates during the build: 100 miss more than twice as much, 400 take twice as long (docs/research/gate.md).
_EDGE_CANDIDATES = 200
_CODED = 1 << 17  # documents of a graph whose codes are added at a time: 200 MB of float32 at d = 384


def build(kind: Kind, vectors: Float32) -> AnyIndex:
    """Build an index.

    Args:
        kind: Kind of the index.
        vectors: (N, d) float32 of unit length, N ≥ 1; at least as many as the kind needs.
    """
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
        index: The other index.
        kept: (M,) int64 ascending positions of the documents to keep, M ≥ 1.

    Raises:
        InputError: If too few documents are left to train codes.
    """
    if len(kept) < (needed := INDEX_KINDS[index.kind].min_documents):
        raise InputError(f"{len(kept)} documents are too few for {index.kind}, which needs {needed}; calibrate again")
    smaller = build(index.kind, index.vectors[kept])
    if index.breadth is not None and smaller.breadth is not None:
        smaller.breadth = index.breadth
    return smaller
