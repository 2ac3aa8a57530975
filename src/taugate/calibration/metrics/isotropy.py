"""Isotropy, how evenly embeddings use the directions of their space, from 0 (one direction) to 1 (all alike)."""

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.retrieval.release.evidence import IsotropyRecord
from taugate.retrieval.vectors.similarity import CorpusVectors, moments


def isotropy(vectors: CorpusVectors) -> IsotropyRecord:
    """Return I_A and I_B (thresholds paper, Appendix A.3) of (n, d) float32 vectors of unit length, n ≥ 1, d ≥ 2.

    Both are computed from the mean and the d × d scatter of V in float64, without an n × n matrix or a decomposition
    of V.
    """
    # One thread: a product's last bits depend on how it is split, and a release's digest holds the result.
    with threadpool_limits(limits=1):
        mean, scatter = moments(vectors)
        n = vectors.shape[0]
        gram = scatter + n * np.outer(mean, mean)
        return IsotropyRecord(i_a=_i_a(n, mean, gram), i_b=_i_b(scatter))


def _i_a(n: int, mean: NDArray[np.float64], gram: NDArray[np.float64]) -> float:
    """Return eq. 5: (|V| − ‖1ᵀV‖ + ½σ²_min) / (|V| + ‖1ᵀV‖ + ½σ²_max), with σ² the d eigenvalues of VᵀV.

    With fewer vectors than dimensions σ_min is 0: some direction c has cᵀv = 0 for every v, as Z(c) of eq. 4 asks.
    """
    squares = np.linalg.eigvalsh(gram)
    common = n * float(np.linalg.norm(mean))
    smallest, largest = max(0.0, float(squares[0])), float(squares[-1])
    return (n - common + 0.5 * smallest) / (n + common + 0.5 * largest)


def _i_b(scatter: NDArray[np.float64]) -> float:
    """Return eq. 6, in which n is the dimension d and Σ_D are the eigenvalues of the covariance.

    The eigenvalues are normalised to length √d (Rudman et al. §4, step 4), so the scatter gives the same result as the
    covariance. Vectors that are all equal vary in no direction and score 0.
    """
    d = len(scatter)
    variances = np.linalg.eigvalsh(scatter)
    length = float(np.linalg.norm(variances))
    if length == 0:
        return 0.0
    defect = float(np.linalg.norm(variances * np.sqrt(d) / length - 1)) / np.sqrt(2 * (d - np.sqrt(d)))
    return float(((d - defect**2 * (d - np.sqrt(d))) ** 2 - d) / (d * (d - 1)))
