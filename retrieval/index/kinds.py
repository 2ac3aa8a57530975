"""Kinds of index, by the name that the command line and the manifest use."""

import ctypes
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.vectors.similarity import Float32, Vectors

Kind = Literal["flat", "flat-float16", "flat-int8", "hnsw", "ivf-flat", "ivf-pq"]

# What FAISS calls them: read from a file, an index of a kind is an instance of exactly this.
FAISS_TYPES: dict[Kind, type] = {
    "flat": faiss.IndexFlatIP,
    "flat-float16": faiss.IndexScalarQuantizer,
    "flat-int8": faiss.IndexScalarQuantizer,
    "hnsw": faiss.IndexHNSWFlat,
    "ivf-flat": faiss.IndexIVFFlat,
    "ivf-pq": faiss.IndexIVFPQ,
}
COMPONENTS_A_CODE = 4  # components of a vector in one byte of product quantisation
# Vectors are padded with zeros to a multiple of these: FAISS reads scalar codes 16 at a time, and several times slower
# where they do not come out even.
_MULTIPLES: dict[Kind, int] = {"flat-float16": 16, "flat-int8": 16, "ivf-pq": COMPONENTS_A_CODE}
QUANTIZERS: dict[Kind, int] = {
    "flat-float16": faiss.ScalarQuantizer.QT_fp16,
    "flat-int8": faiss.ScalarQuantizer.QT_8bit,
}


def padded_dimension(kind: Kind, dimension: int) -> int:
    """Length of a vector of `dimension` as FAISS has it."""
    return dimension + -dimension % _MULTIPLES.get(kind, 1)


def padded(vectors: Float32, dimension: int) -> Float32:
    """(n, d) with zeros up to `dimension`, in one piece."""
    missing = dimension - vectors.shape[1]
    whole = np.pad(vectors, ((0, 0), (0, missing))) if missing else vectors
    return np.ascontiguousarray(whole, dtype=np.float32)


class Halves:
    """float16, each exactly a float32."""

    def __init__(self, index: Any, dimension: int) -> None:  # noqa: ANN401 (faiss has no types)
        self._codes = codes(index).view(np.float16)[:, :dimension]
        self.shape: tuple[int, ...] = self._codes.shape

    def __getitem__(self, positions: NDArray[np.int64], /) -> Float32:
        return self._codes[positions].astype(np.float32)


class Bytes:
    """One byte a component: a 256th of the range that the component has in the corpus."""

    def __init__(self, index: Any, dimension: int) -> None:  # noqa: ANN401
        self._codes = codes(index)[:, :dimension]
        self.shape: tuple[int, ...] = self._codes.shape
        ranges: Float32 = faiss.vector_to_array(index.sq.trained)
        low, width = ranges.reshape(2, -1)[:, :dimension]
        self._low = low + width / np.float32(510)  # a code stands for the middle of its interval
        self._step = width / np.float32(255)

    def __getitem__(self, positions: NDArray[np.int64], /) -> Float32:
        vectors: Float32 = self._low + self._codes[positions] * self._step
        return vectors


class Listed:
    """float32 in inverted lists, found by the map from positions that the index carries."""

    def __init__(self, index: Any) -> None:  # noqa: ANN401
        self._index = index
        self.shape: tuple[int, ...] = (int(index.ntotal), int(index.d))

    def __getitem__(self, positions: NDArray[np.int64], /) -> Float32:
        vectors: Float32 = self._index.reconstruct_batch(np.ascontiguousarray(positions).ravel())
        return vectors.reshape(*positions.shape, self.shape[1])


def stored(index: Any, dimension: int) -> Vectors:  # noqa: ANN401
    """The vectors of a flat, scalar-quantised, HNSW or IVF-flat index of FAISS, (N, dimension) without padding."""
    if isinstance(index, faiss.IndexIVFFlat):
        return Listed(index)
    if isinstance(index, faiss.IndexHNSWFlat):
        return codes(faiss.downcast_index(index.storage), index).view(np.float32)
    if isinstance(index, faiss.IndexScalarQuantizer):
        return (Halves if index.sq.qtype == QUANTIZERS["flat-float16"] else Bytes)(index, dimension)
    return codes(index).view(np.float32)


def codes(index: Any, owner: Any = None) -> NDArray[np.uint8]:  # noqa: ANN401
    """FAISS's own storage as a read-only array (N, bytes a document), which keeps the index and its owner alive.

    FAISS's rev_swig_ptr gives such a view too, but one that reads freed memory once the index is gone.
    """
    memory = (ctypes.c_uint8 * index.codes.size()).from_address(int(index.codes.data()))
    memory.owner = index, owner
    codes = np.frombuffer(memory, dtype=np.uint8).reshape(-1, index.code_size)
    codes.flags.writeable = False
    return codes
