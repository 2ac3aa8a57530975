"""The kinds of index, their classes in FAISS and their stored vectors, also as codes of one byte per component.

Codes of one byte per component, which propose documents to exact search ten times as fast as float32 vectors. FAISS
multiplies the codes of a query and of a document in whole numbers. How far such a product can be from the similarity
follows from the rounding of the codes alone, so exact search can prove that it misses no document.
"""

import ctypes
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.policy.arrays import Float32, Vectors
from taugate.release.names import Kind
from taugate.retrieval.vectors import rounding_bound

# The class of every kind; an index read from a file must be an instance of exactly this class.
FAISS_TYPES: dict[Kind, type] = {
    "flat": faiss.IndexFlatIP,
    "flat-float16": faiss.IndexScalarQuantizer,
    "flat-int8": faiss.IndexScalarQuantizer,
    "hnsw": faiss.IndexHNSWSQ,
    "ivf-flat": faiss.IndexIVFFlat,
    "ivf-pq": faiss.IndexIVFPQ,
}
QUANTIZERS: dict[Kind, int] = {
    "flat-float16": faiss.ScalarQuantizer.QT_fp16,
    "flat-int8": faiss.ScalarQuantizer.QT_8bit_direct_signed,
}
# The quantiser of flat-int8 in releases of 0.2 and before, which have no exact vectors beside the codes.
ROUNDED_INT8 = faiss.ScalarQuantizer.QT_8bit
FLOAT32_GRAPH = faiss.IndexHNSWFlat  # the class of hnsw in such releases, which stores the vectors themselves
COMPONENTS_A_CODE = 4  # vector components per byte of product quantisation
# Vectors are padded with zeros to a multiple of these. FAISS reads scalar codes 16 at a time, and is several times
# slower for other lengths.
_MULTIPLES: dict[Kind, int] = {"flat-float16": 16, "flat-int8": 16, "hnsw": 16, "ivf-pq": COMPONENTS_A_CODE}

_KIND: Kind = "flat-int8"
_MAX_CODE = 127  # of a signed byte; −128 is unused, so that the sign of a component changes nothing
_ROUNDED = 0.5 + _MAX_CODE * 2.0**-24  # largest difference of a code from its float32 quotient by the step
_BLOCK = 1 << 14  # documents coded at a time: 25 MB of float32 at d = 384


def proposes_by_codes(index: Any, kind: Kind) -> bool:  # noqa: ANN401 (faiss has no types)
    """Return whether an index stores codes that only propose documents, so that VECTORS has the exact vectors."""
    if kind == "hnsw":
        return type(index) is FAISS_TYPES[kind]
    return kind == "ivf-pq" or (kind == "flat-int8" and index.sq.qtype != ROUNDED_INT8)


def padded_dimension(kind: Kind, dimension: int) -> int:
    """Return the padded dimension at which an index of a kind stores vectors of `dimension`."""
    return dimension + -dimension % _MULTIPLES.get(kind, 1)


def padded(vectors: Float32, dimension: int) -> Float32:
    """Pad vectors, (n, d) float32, with zeros; returns (n, dimension ≥ d) float32, contiguous."""
    missing = dimension - vectors.shape[1]
    result = np.pad(vectors, ((0, 0), (0, missing))) if missing else vectors
    return np.ascontiguousarray(result, dtype=np.float32)


def stored_vectors(index: Any, dimension: int) -> Vectors:  # noqa: ANN401 (faiss has no types)
    """Return the vectors of an index, (N, dimension), without padding.

    Args:
        index: Flat, scalar-quantised, HNSW or IVF-flat index of FAISS.
    """
    if isinstance(index, faiss.IndexIVFFlat):
        return InvertedListVectors(index)
    if isinstance(index, faiss.IndexHNSWFlat):
        return stored_codes(faiss.downcast_index(index.storage), index).view(np.float32)
    if isinstance(index, faiss.IndexScalarQuantizer):
        halves = index.sq.qtype == QUANTIZERS["flat-float16"]
        return (Float16Vectors if halves else Int8Vectors)(index, dimension)
    return stored_codes(index).view(np.float32)


class Float16Vectors:
    """Vectors stored as float16, which float32 represents exactly.

    Args:
        index: Scalar-quantised index of FAISS.
    """

    def __init__(self, index: Any, dimension: int) -> None:  # noqa: ANN401 (faiss has no types)
        self._codes = stored_codes(index).view(np.float16)[:, :dimension]
        self.shape: tuple[int, ...] = self._codes.shape

    def __getitem__(self, positions: NDArray[np.int64], /) -> Float32:
        return self._codes[positions].astype(np.float32)


class Int8Vectors:
    """Vectors of ROUNDED_INT8, stored as one byte per component: a 256th of the component's range in the corpus.

    Args:
        index: Scalar-quantised index of FAISS.
    """

    def __init__(self, index: Any, dimension: int) -> None:  # noqa: ANN401
        self._codes = stored_codes(index)[:, :dimension]
        self.shape: tuple[int, ...] = self._codes.shape
        ranges: Float32 = faiss.vector_to_array(index.sq.trained)
        low, width = ranges.reshape(2, -1)[:, :dimension]
        self._low = low + width / np.float32(510)  # a code represents the middle of its interval
        self._step = width / np.float32(255)

    def __getitem__(self, positions: NDArray[np.int64], /) -> Float32:
        vectors: Float32 = self._low + self._codes[positions] * self._step
        return vectors


class InvertedListVectors:
    """Vectors stored as float32 in inverted lists, located by the index's map from positions.

    Args:
        index: IVF-flat index of FAISS with a direct map.
    """

    def __init__(self, index: Any) -> None:  # noqa: ANN401
        self._index = index
        self.shape: tuple[int, ...] = (int(index.ntotal), int(index.d))

    def __getitem__(self, positions: NDArray[np.int64], /) -> Float32:
        vectors: Float32 = self._index.reconstruct_batch(np.ascontiguousarray(positions).ravel())
        return vectors.reshape(*positions.shape, self.shape[1])


def stored_codes(index: Any, owner: Any = None) -> NDArray[np.uint8]:  # noqa: ANN401
    """Return FAISS's storage as a read-only array, (N, bytes per document) uint8, which keeps the index alive.

    A view by FAISS's rev_swig_ptr would read freed memory once the index is deleted.

    Args:
        owner: Index that contains `index`, which is kept alive as well.
    """
    memory = (ctypes.c_uint8 * index.codes.size()).from_address(int(index.codes.data()))
    memory.owner = index, owner
    codes = np.frombuffer(memory, dtype=np.uint8).reshape(-1, index.code_size)
    codes.flags.writeable = False
    return codes


class Int8Codes:
    """The codes of N documents: their components divided by one step for all of them, and rounded.

    Attributes:
        faiss: Scalar-quantised index of FAISS; its argument of range statistics, which these codes do not use, has the
            step, because FAISS stores no other number with such an index.

    Args:
        dimension: Dimension of a vector before padding.
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
        index = faiss.IndexScalarQuantizer(
            padded_dimension(_KIND, dimension), faiss.ScalarQuantizer.QT_8bit_direct_signed, faiss.METRIC_INNER_PRODUCT
        )
        index.sq.rangestat_arg = add_codes(index, vectors, _BLOCK)
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
