"""Top-K accuracy: is a relevant document among those returned (thresholds paper §2.1)."""

import numpy as np
from numpy.typing import NDArray


def accuracy(grades: NDArray[np.int64], kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    """1.0 for each query with a kept relevant document in its top-K, else 0.0.

    grades: (q, K), 0 for what is not relevant; kept: (q, K). Returns (q,).
    """
    hits: NDArray[np.bool_] = np.any((grades >= 1) & kept, axis=1)
    return hits.astype(np.float64)
