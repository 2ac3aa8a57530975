"""Mean and scatter of many vectors, in blocks so that no second copy of a large corpus is made."""

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.vectors.similarity import Float32

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
