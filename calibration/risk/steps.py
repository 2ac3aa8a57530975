"""Loss as a function of τ: a staircase that rises where τ passes the decision score of a relevant result.

Per query the loss is paired: the metric without the cut less the metric with it, in 0…1, and it never falls as τ rises.
Its steps are the only candidates worth looking at: between two of them τ drops more results and loses nothing.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from calibration.metrics.judged import JudgedQueries
from calibration.metrics.ndcg import discounts
from retrieval.policy import Metric
from retrieval.similarity import Float32


@dataclass(frozen=True)
class LossSteps:
    """Candidate thresholds and the loss of each.

    queries: n, with and without a step; candidates: (c,) float32 observed decision scores, ascending; losses: (c + 1,)
    float64, total loss of the n queries when τ has so many candidates strictly below it; binary: whether the loss of
    one query is 0 or 1 and nothing between.
    """

    queries: int
    candidates: Float32
    losses: NDArray[np.float64]
    binary: bool

    @classmethod
    def of_accuracy(cls, queries: JudgedQueries, decisions: Float32) -> Self:
        """1 for a query that had a relevant document in its top-K and keeps none; decisions: (q, K) float32."""
        relevant = queries.grades >= 1
        best = np.where(relevant, decisions, -np.inf).max(axis=1)[relevant.any(axis=1)]
        return cls._stairs(len(queries), best.astype(np.float32), np.ones(len(best)), binary=True)

    @classmethod
    def of_ndcg(cls, queries: JudgedQueries, decisions: Float32) -> Self:
        """The part of a query's NDCG@K that dropped documents had gained, by the ranks of the uncut list."""
        gains = queries.grades * discounts(queries.grades.shape[1]) / queries.ideal[:, None]
        relevant = queries.grades >= 1
        return cls._stairs(len(queries), decisions[relevant], gains[relevant], binary=False)

    @classmethod
    def of_empty(cls, decisions: Float32) -> Self:
        """1 for a query that is answered with nothing; decisions: (q, K) float32."""
        return cls._stairs(len(decisions), decisions.max(axis=1), np.ones(len(decisions)), binary=True)

    @classmethod
    def _stairs(cls, queries: int, at: Float32, height: NDArray[np.float64], *, binary: bool) -> Self:
        candidates, which = np.unique(at, return_inverse=True)
        heights = np.bincount(which, weights=height, minlength=len(candidates))
        return cls(queries, candidates, np.concatenate([[0.0], np.cumsum(heights)]), binary)

    def reaching(self, total: float) -> np.float32:
        """The lowest threshold at which the n queries lose `total` or more; above all candidates if none does."""
        step = min(int(np.searchsorted(self.losses, total - 1e-9, side="left")), len(self.candidates))
        above: np.float32 = np.nextafter(self.candidates[max(step - 1, 0)], np.float32(np.inf))
        return above

    def at(self, thresholds: Float32) -> NDArray[np.float64]:
        """Total loss of the n queries at any thresholds; thresholds: (t,) float32. Returns (t,)."""
        return self.losses[np.searchsorted(self.candidates, thresholds, side="left")]


def loss_steps(queries: JudgedQueries, decisions: Float32, metric: Metric) -> LossSteps:
    """The staircase of the metric that is to be kept."""
    return (LossSteps.of_accuracy if metric == "accuracy" else LossSteps.of_ndcg)(queries, decisions)
