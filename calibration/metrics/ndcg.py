"""NDCG@K with the gain that trec_eval and BEIR use: the grade itself, discounted by log2(rank + 1)."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray


def discounts(k: int) -> NDArray[np.float64]:
    """1 / log2(rank + 1) for the ranks 1…k."""
    return 1.0 / np.log2(np.arange(2, k + 2))


def ideal_dcg(grades: Collection[int], k: int) -> float:
    """DCG@K of the relevant documents in the best order; grades: of all of them, each ≥ 1."""
    best = np.array(sorted(grades, reverse=True)[:k], dtype=np.float64)
    return float(best @ discounts(len(best)))


def ndcg(grades: NDArray[np.int64], kept: NDArray[np.bool_], ideal: NDArray[np.float64]) -> NDArray[np.float64]:
    """NDCG@K of each query over what is kept, by the ranks of the uncut list; what is dropped gains nothing.

    grades, kept: (q, K), best first; ideal: (q,), `ideal_dcg` of each query. Returns (q,) in 0…1.
    """
    dcg: NDArray[np.float64] = np.where(kept, grades, 0) @ discounts(grades.shape[1])
    return dcg / ideal
