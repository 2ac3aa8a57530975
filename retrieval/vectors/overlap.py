"""COE and ROE: how far top-K similarities overlap with those of correct and of random documents.

Thresholds paper §2.3, eq. 1 and 2. The papers leave open which percentile of S_topK gives θ: on their own telecom
questions the 5th reproduces the published rows within 0.5 points and the minimum does not, hence the default.
"""

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.vectors.similarity import Float32

DEFAULT_OVERLAP_PERCENTILE = 5.0


def overlap_thresholds(top_scores: Float32, rows: NDArray[np.int64], percentile: float) -> NDArray[np.float64]:
    """θ_j of each bootstrap j: the percentile (0…100) of the top-K similarities of its queries.

    top_scores: (q, K) float32; rows: (m, l) query positions. Returns (m,) float64.
    """
    pooled = top_scores[rows].reshape(len(rows), -1)
    return np.percentile(pooled, percentile, axis=1).astype(np.float64)


def share_above(sample: Float32, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 − ECDF of `sample` at each threshold: the share of it strictly above.

    With S_corr this is COE at each θ_j, with S_rand it is ROE. sample: (s,) float32, s ≥ 1; thresholds: (m,).
    Returns (m,) float64 in 0…1.
    """
    below_or_equal = np.searchsorted(np.sort(sample).astype(np.float64), thresholds, side="right")
    return 1.0 - below_or_equal / len(sample)
