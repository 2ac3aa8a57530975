"""The vectors that an index holds, by document position, as float32: what similarity is computed from.

Views of FAISS's own memory, which for an index file is a mapping of it: nothing is copied but the rows asked for.
"""

import ctypes
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.kinds import QUANTIZERS
from taugate.retrieval.vectors.similarity import Float32, Vectors


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
