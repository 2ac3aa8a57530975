"""Separation Δ_M: distance of each domain text from the nearest general text (thresholds paper §2.6)."""

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.retrieval.vectors.similarity import Float32

_BLOCK_NUMBERS = 1 << 22  # distances held at a time: 32 MB


def separation(domain: Float32, general: Float32, *, same: bool = False) -> NDArray[np.float64]:
    """Return Δ_M(D, D′), (N,) float64: for each domain text the smallest Euclidean distance to a general text.

    The paper writes a set of minima over pairs that has as many members as D, so the minimum is over D′.

    Args:
        domain: (N, d) float32 of unit length, embeddings of D.
        general: (G, d) float32 of unit length, embeddings of D′, G ≥ 1.
        same: D and D′ are one set in the same order: the distance of a text to itself does not count, G ≥ 2.
    """
    general64 = general.astype(np.float64)
    squares = np.einsum("gd,gd->g", general64, general64)
    distances = np.empty(len(domain))
    step = max(1, _BLOCK_NUMBERS // len(general64))
    # One thread: a product's last bits depend on how it is split, and the digest of a release holds what follows.
    with threadpool_limits(limits=1):
        for start in range(0, len(domain), step):
            block = domain[start : start + step].astype(np.float64)
            squared = np.einsum("nd,nd->n", block, block)[:, None] + squares - 2 * (block @ general64.T)
            if same:
                rows = np.arange(len(block))
                squared[rows, start + rows] = np.inf
            distances[start : start + len(block)] = np.sqrt(np.maximum(squared.min(axis=1), 0.0))
    return distances
