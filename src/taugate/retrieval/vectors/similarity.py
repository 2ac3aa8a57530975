"""The one definition of similarity: the same bits for every index, batch size, thread count and device.

The last bits of a float32 matrix product depend on how the library splits the work, so a pair of texts could score
above a threshold alone and below it in a batch. Every score that is compared with a threshold is therefore summed in
float64 and rounded once to float32. The order of the sum then matters only if the exact sum is within 1e-16 of the
midpoint of two float32 numbers, about once in a hundred million pairs. The cost is K products of length d per query.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]

_BLOCK_NUMBERS = 1 << 21  # limits a block's float64 copy to 16 MB; larger blocks take twice as long
TOGETHER = 4  # OpenBLAS multiplies fewer vectors by a matrix faster one by one: in 20 µs, not 48 µs, each of two
_BLOCK_ROWS = 8192  # vectors summed at a time for moments: a float64 copy of 25 MB at d = 384


class Vectors(Protocol):
    """The vectors of N documents: an array of shape (N, d), or an object that is read by position like one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, d)."""
        ...

    def __getitem__(self, positions: NDArray[np.int64], /) -> Float32:
        """Return the float32 vectors at positions of any shape (…); the result has the shape (…, d)."""
        ...


class StoredVectors(Vectors, Protocol):
    """Vectors of N documents outside the process's memory, read by position or entirely in blocks."""

    def blocks(self) -> Iterator[tuple[int, Float32]]:
        """Yield the position of a block's first vector and the block, (m, d) float32, in the order of the corpus."""
        ...


CorpusVectors = Float32 | StoredVectors


def blocks(vectors: CorpusVectors) -> Iterator[tuple[int, Float32]]:
    """Yield blocks of vectors with the positions of their first vectors; an array is one block."""
    if isinstance(vectors, np.ndarray):
        yield 0, vectors
    else:
        yield from vectors.blocks()


def require_in_memory(vectors: CorpusVectors) -> Float32:
    """Return vectors that must be in memory.

    Raises:
        TypeError: If they are not.
    """
    if not isinstance(vectors, np.ndarray):
        raise TypeError("vectors outside the memory must be read in blocks")
    return vectors


def similarity(queries: Float32, documents: Float32) -> Float32:
    """Return the cosine similarity of every query with its own documents, (n, c) float32.

    Args:
        queries: (n, d) float32 of unit length.
        documents: (n, c, d) float32 of unit length.
    """
    products: NDArray[np.float64] = np.einsum("nd,ncd->nc", queries.astype(np.float64), documents.astype(np.float64))
    return products.astype(np.float32)


def pair_similarity(queries: Float32, vectors: Vectors, positions: NDArray[np.int64]) -> Float32:
    """Return the similarity of query i with the documents at `positions[i]`, (n, c) float32, in bounded memory.

    Args:
        queries: (n, d) float32 of unit length.
        vectors: (N, d) vectors of the corpus.
        positions: (n, c) int64 positions in `vectors`.
    """
    scores = np.empty(positions.shape, dtype=np.float32)
    step = max(1, _BLOCK_NUMBERS // max(1, positions.shape[1] * vectors.shape[1]))
    for start in range(0, len(queries), step):
        block = slice(start, start + step)
        scores[block] = similarity(queries[block], vectors[positions[block]])
    return scores


def products(queries: Float32, documents: Float32) -> Float32:
    """Return the products of all queries and documents, (n, m) float32, within `rounding_bound` of the similarities.

    Args:
        queries: (n, d) float32 of unit length.
        documents: (m, d) float32 of unit length.
    """
    if len(queries) >= TOGETHER:
        return queries @ documents.T
    return np.stack([documents @ query for query in queries])


def shortest_decimal(value: float | np.float32) -> float:
    """Return the number with the fewest digits that reads as the same float32: some 7 digits, of which float64 has 17.

    Args:
        value: A float32, or a float64 that has been one.
    """
    return float(str(np.float32(value)))


def rounding_bound(dimension: int) -> float:
    """Return the largest difference between `similarity` and a float32 dot product of unit vectors, in any order.

    γ_d = d·u / (1 − d·u) with u = 2⁻²⁴ (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., eq. 3.5), plus
    the final rounding of `similarity` itself, and the vectors' deviation from unit length.
    """
    unit = 2.0**-24
    return (dimension + 4) * unit / (1 - (dimension + 4) * unit) + unit


def moments(vectors: CorpusVectors) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean, (d,), and the scatter Σ (v − mean)(v − mean)ᵀ, (d, d), of vectors, in float64.

    Vectors are centred before they are multiplied, so close vectors lose no digits. Vectors outside the memory are read
    twice.

    Args:
        vectors: (n, d) float32, n ≥ 1.
    """
    mean: NDArray[np.float64] = total(vectors) / vectors.shape[0]
    scatter = np.zeros((len(mean), len(mean)))
    for _, block in blocks(vectors):
        for start in range(0, len(block), _BLOCK_ROWS):
            scatter += _products(block[start : start + _BLOCK_ROWS] - mean)  # one float64 copy at a time
    return mean, scatter


def _products(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rowsᵀ·rows, (d, d), of (n, d) rows."""
    return rows.T @ rows


def total(vectors: CorpusVectors) -> NDArray[np.float64]:
    """Return the sum of vectors, (n, d) float32, in float64, (d,)."""
    parts = [block.sum(axis=0, dtype=np.float64) for _, block in blocks(vectors)]
    summed: NDArray[np.float64] = parts[0] if len(parts) == 1 else np.sum(parts, axis=0)
    return summed
