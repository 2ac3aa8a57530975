"""The kinds of index, their classes in FAISS and their stored vectors."""

import ctypes
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.policy.arrays import Float32, Vectors
from taugate.release.names import Kind

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


def proposes_by_codes(index: Any, kind: Kind) -> bool:  # noqa: ANN401 (faiss has no types)
    """Return whether an index stores codes that only propose documents, so that VECTORS has the exact vectors."""
    if kind == "hnsw":
        return type(index) is FAISS_TYPES[kind]
    return kind == "ivf-pq" or (kind == "flat-int8" and index.sq.qtype != ROUNDED_INT8)


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
