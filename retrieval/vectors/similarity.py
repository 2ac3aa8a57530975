"""The one definition of similarity, the same bits for every index, batch size, thread count and device.

A matrix product in float32 depends in its last bits on how the library splits the work, so the same pair of texts can
score above a threshold alone and below it in a batch. Here every score that is compared with a threshold is summed in
float64 and rounded once to float32, and the order of the sum no longer shows, but where the exact sum lies within 1e-16
of the middle between two float32 numbers: about once in a hundred million pairs. The cost is K products of length d a
query.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


class Vectors(Protocol):
    """Vectors of documents, (N, d), float32 by position: an array, or something that reads like one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, d)."""
        ...

    def __getitem__(self, positions: NDArray[np.int64], /) -> Float32:
        """Of those at `positions`, of any shape, d more at its end."""
        ...


# Numbers a block may have: bounds its float64 copy to 64 MB.
_BLOCK_NUMBERS = 1 << 23


def similarity(queries: Float32, documents: Float32) -> Float32:
    """Cosine similarity of each query with its own candidate documents.

    queries: (n, d) float32 of unit length; documents: (n, c, d) float32 of unit length.
    Returns (n, c) float32.
    """
    products: NDArray[np.float64] = np.einsum("nd,ncd->nc", queries.astype(np.float64), documents.astype(np.float64))
    return products.astype(np.float32)


def pair_similarity(queries: Float32, vectors: Vectors, positions: NDArray[np.int64]) -> Float32:
    """Similarity of query i with the documents at `positions[i]`, in blocks of bounded memory.

    queries: (n, d); vectors: (N, d), the whole corpus; positions: (n, c) into `vectors`. Returns (n, c) float32.
    """
    scores = np.empty(positions.shape, dtype=np.float32)
    step = max(1, _BLOCK_NUMBERS // max(1, positions.shape[1] * vectors.shape[1]))
    for start in range(0, len(queries), step):
        block = slice(start, start + step)
        scores[block] = similarity(queries[block], vectors[positions[block]])
    return scores


def rounding_bound(dimension: int) -> float:
    """Largest difference between a float32 dot product of unit vectors, in any order, and `similarity`.

    γ_d = d·u / (1 − d·u) with u = 2⁻²⁴ (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., eq. 3.5), plus
    the final rounding of `similarity` itself, and the vectors' own distance from unit length.
    """
    unit = 2.0**-24
    return (dimension + 4) * unit / (1 - (dimension + 4) * unit) + unit


# Vectors copied to float64 at a time: 25 MB at d = 384.
_BLOCK = 8192


def moments(vectors: Float32) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean, (d,), and Σ (v − mean)(v − mean)ᵀ, (d, d), in float64; vectors: (n, d), n ≥ 1.

    Centred before it is multiplied: vectors all close together lose no digits.
    """
    mean: NDArray[np.float64] = vectors.mean(axis=0, dtype=np.float64)
    scatter = np.zeros((len(mean), len(mean)))
    for start in range(0, len(vectors), _BLOCK):
        centred = vectors[start : start + _BLOCK] - mean
        scatter += centred.T @ centred
    return mean, scatter
