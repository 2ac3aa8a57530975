"""Unit vectors, their projections, and the one definition of similarity: the same bits on every device.

The one definition of similarity: the same bits for every index, batch size, thread count and device. The last bits of a
float32 matrix product depend on how the library splits the work, so a pair of texts could score above a threshold alone
and below it in a batch. Every score that is compared with a threshold is therefore summed in float64 and rounded once
to float32. The order of the sum then matters only if the exact sum is within 1e-16 of the midpoint of two float32
numbers, about once in a hundred million pairs. The cost is K products of length d per query.

Inner products as cosines: with one more coordinate, a search by cosine ranks by the inner product. A document x becomes
(x / M, √(1 − |x|² / M²)), and a query q becomes (q / |q|, 0). Both have length 1, and their cosine is q·x / (|q| M), so
documents are in the order of q·x (Bachrach et al., RecSys 2014, theorem 1; Neyshabur and Srebro, ICML 2015, §4.2). M is
at least the length of any document. A longer one counts as its direction with length M.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError, ReleaseError
from taugate.policy.arrays import TOGETHER, Float32, Vectors
from taugate.storage.tensors import read_tensors, write_tensors

_BLOCK_NUMBERS = 1 << 21  # limits a block's float64 copy to 16 MB; larger blocks take twice as long


# A vector of float16 numbers that was normalized has a length of 1 ± .001, and one of bfloat16 numbers 1 ± .004.
_UNIT = 0.005
# A vector that was normalized in float32 keeps its bits, so that it scores as where it was made; its length is off by
# 1e-7.
_ROUNDING = 1e-6
_ROWS_FLOAT64 = 1 << 14  # rows in float64 at a time: 100 MB of 768 numbers each

# Of 1,400 documents of four data sets, the longest vector by all-MiniLM-L6-v2 without its normalization has .81, .97 or
# 1.27 of the length of the longest passage among the probes of the export (pooling mean, cls or max). A larger M makes
# cosines small beside the share of common words, whose weights are tried for cosines up to 1.
_HEADROOM = 1.3

# Rows projected at a time: a float64 copy of 25 MB at d = 384.
_ROWS = 8192


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
    """Return the largest difference between `similarity` and a float32 dot product of unit vectors, in any order."""
    # γ_d = d·u / (1 − d·u) with u = 2⁻²⁴ (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., eq. 3.5),
    # plus the final rounding of `similarity` itself, and the vectors' deviation from unit length.
    unit = 2.0**-24
    return (dimension + 4) * unit / (1 - (dimension + 4) * unit) + unit


def unit_vectors(vectors: NDArray[Any], row_name: Callable[[int], str]) -> tuple[Float32, NDArray[np.float64]]:
    """Return vectors with length 1, (n, d), and the lengths that they had, (n,).

    Args:
        vectors: (n, d) floats of any type.
    """
    unit = np.empty(vectors.shape, dtype=np.float32)
    lengths = np.empty(len(vectors))
    for start in range(0, len(vectors), _ROWS_FLOAT64):
        rows = slice(start, start + _ROWS_FLOAT64)
        wide = vectors[rows].astype(np.float64)  # in float32, the square of a length may overflow
        lengths[rows] = np.linalg.norm(wide, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):  # refused below
            unit[rows] = wide / np.where(np.abs(lengths[rows] - 1) < _ROUNDING, 1.0, lengths[rows])[:, None]
    for wrong, problem in ((~np.isfinite(lengths), "holds NaN or infinity"), (lengths == 0, "is zero")):
        if wrong.any():
            raise InputError(f"{row_name(int(wrong.argmax()))}: {problem} (such rows in all: {wrong.sum():,})")
    return unit, lengths


def were_normalized(lengths: NDArray[np.float64]) -> bool:
    """Return whether all lengths, (n,), are 1, up to the rounding of half precision."""
    return bool((np.abs(lengths - 1) <= _UNIT).all())


def vector_bytes(values: Sequence[float], dimension: int) -> bytes:
    """Return the vector of a query with length 1, as the bytes of (`dimension`,) float32.

    Args:
        dimension: Length that it must have.
    """
    if len(values) != dimension:
        raise InputError(f"vector: has {len(values)} numbers, and those of the release have {dimension}")
    try:
        (unit,), _ = unit_vectors(np.array([values], dtype=np.float64), lambda _: "vector")
    except InputError as error:
        raise InputError(str(error).partition(" (")[0]) from error
    return bytes(unit.tobytes())


def extended(vectors: Float32, *, documents: bool | NDArray[np.bool_], max_norm: float) -> Float32:
    """Return unit vectors whose cosines are in the order of inner products, (n, d + 1) float32.

    Args:
        vectors: (n, d) float32 of any length.
        documents: Whether each row, or every row, is of a document; the others are of queries. A query that is zero
            stays zero.
    """
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1)
    shorter = np.where(documents & (lengths < max_norm), max_norm, np.where(lengths == 0, 1.0, lengths))
    last = np.where(documents, np.sqrt(np.maximum(0.0, 1 - (lengths / shorter) ** 2)), 0.0)
    return np.column_stack([wide / shorter[:, None], last]).astype(np.float32)


def max_norm_above(longest: float) -> float:
    """Return M for vectors like those of some documents, in two digits, so that it does not depend on rounding.

    Args:
        longest: The largest length of their vectors.
    """
    return float(f"{_HEADROOM * longest:.1e}")


def count_longer(vectors: Float32) -> int:
    """Return how many documents are longer than M, of (n, d + 1) vectors made by `extended`."""
    return int(np.count_nonzero(vectors[:, -1] == 0))


@dataclass(frozen=True)
class Projection:
    """The map x ↦ (x − μ)W, scaled to unit length, so that the inner product afterwards is the cosine.

    (Algorithm 1, lines 4 and 7.)
    """

    mean: NDArray[np.float64]  # μ, (d,) float64
    components: NDArray[np.float64]  # W, (d, d') float64, in descending order of variance

    @property
    def dimensions(self) -> tuple[int, int]:
        """Dimensions before and after, (d, d')."""
        return self.components.shape[0], self.components.shape[1]

    def apply(self, vectors: Float32) -> Float32:
        """Project unit vectors of queries or documents, (n, d) float32; returns unit vectors, (n, d') float32."""
        # Computed in float64 and rounded once. Zero vectors, of texts without a token, remain zero and are similar to
        # nothing. A vector that equals μ becomes zero.
        projected = np.empty((len(vectors), self.components.shape[1]), dtype=np.float32)
        for start in range(0, len(vectors), _ROWS):
            block = vectors[start : start + _ROWS]
            moved = (block - self.mean) @ self.components
            length = np.linalg.norm(moved, axis=1, keepdims=True)
            nonzero = (length > 0) & block.any(axis=1, keepdims=True)
            projected[start : start + _ROWS] = np.divide(moved, length, out=np.zeros_like(moved), where=nonzero)
        return projected

    def first(self, dimension: int) -> Self:
        """Return the projection onto the first `dimension` components: those of the largest variance."""
        return type(self)(self.mean, self.components[:, :dimension])

    def save(self, path: Path) -> None:
        """Write both arrays to one safetensors file."""
        write_tensors(path, {"mean": self.mean, "components": self.components})

    @classmethod
    def load(cls, path: Path, before: int, after: int) -> Self:
        """Read the file that `save` wrote. Raises ReleaseError if it holds anything else."""
        arrays = read_tensors(path)
        expected = {"mean": (before,), "components": (before, after)}
        shapes = {name: array.shape for name, array in arrays.items()}
        if shapes != expected or not all(
            array.dtype == np.float64 and np.isfinite(array).all() for array in arrays.values()
        ):
            raise ReleaseError(f"{path}: not a projection from {before} to {after} dimensions; calibrate again")
        return cls(arrays["mean"], arrays["components"])
