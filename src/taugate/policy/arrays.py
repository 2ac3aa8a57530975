"""Arrays that policies read: vectors of queries and of documents, in memory or in blocks, and ranked results.

Queries are (n, d) and documents (N, d) float32 of unit length; results are (n, w), best first; positions are int64.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
TOGETHER = 4  # OpenBLAS multiplies fewer vectors by a matrix faster one by one: in 20 µs, not 48 µs, each of two
_BLOCK_ROWS = 8192  # vectors summed at a time for moments: a float64 copy of 25 MB at d = 384
Terms = NDArray[np.uint32]


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
    """Return vectors that must be in memory. Raises TypeError if they are not."""
    if not isinstance(vectors, np.ndarray):
        raise TypeError("vectors outside the memory must be read in blocks")
    return vectors


def moments(vectors: CorpusVectors) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean, (d,), and the scatter Σ (v − mean)(v − mean)ᵀ, (d, d), of n ≥ 1 vectors, in float64."""
    # Vectors are centred before they are multiplied, so close vectors lose no digits. Others are read twice.
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


@dataclass(frozen=True, eq=False)
class HybridVectors:
    """The vectors of n queries and their words."""

    dense: Float32  # (n, d) float32 of unit length
    # the terms of each query, (t,) uint32 each: distinct and ascending, see `words.query_terms`
    terms: tuple[Terms, ...]

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        return self.dense.shape

    def __getitem__(self, rows: slice | NDArray[Any] | Sequence[int]) -> Self:
        """Return some of the queries, chosen by a slice, positions or a mask."""
        chosen = np.arange(len(self))[rows]
        return type(self)(self.dense[chosen], tuple(self.terms[row] for row in chosen.tolist()))


QueryVectors = Float32 | HybridVectors


def dense_of(queries: QueryVectors) -> Float32:
    """Return the vectors of queries without their words, (n, d) float32."""
    return queries.dense if isinstance(queries, HybridVectors) else queries


def map_dense(queries: QueryVectors, change: Callable[[Float32], Float32]) -> QueryVectors:
    """Change the vectors of queries, such as by a projection, and keep their words if they have any."""
    return replace(queries, dense=change(queries.dense)) if isinstance(queries, HybridVectors) else change(queries)


def concatenate(parts: Sequence[QueryVectors]) -> QueryVectors:
    """Join queries, all with words or all without."""
    dense = np.concatenate([dense_of(part) for part in parts])
    hybrid = [part for part in parts if isinstance(part, HybridVectors)]
    if not hybrid:
        return dense
    if len(hybrid) < len(parts):
        raise TypeError("some queries have words and others have none")
    return HybridVectors(dense, tuple(chain.from_iterable(part.terms for part in hybrid)))


def mean_and_covariance(vectors: CorpusVectors) -> tuple[Float64, Float64]:
    """Return mean, (d,), and covariance, (d, d), of vectors, (n, d) float32, in float64."""
    mean, scatter = moments(vectors)
    return mean, scatter / vectors.shape[0]


@dataclass(frozen=True)
class Ranking:
    """The K best results of n queries, best first."""

    scores: Float32  # (n, K) float32 scores
    positions: NDArray[np.int64]  # (n, K) int64 positions of the documents

    def __len__(self) -> int:
        return len(self.scores)
