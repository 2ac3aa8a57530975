"""The lower part of many staircases of loss, where the cuts are: the same τ as `certify` finds, a hundred times faster."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.evidence.verdicts import passed
from benchmarks.searched import SearchedSplit
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.certify import p_values
from taugate.evidence.risk.steps import LossSteps
from taugate.policy.arrays import Float32

_REACH = 4.0  # times the largest δ: no cut that loses more is certified
_HIGH = np.finfo(np.float32).max  # stands for every score above the staircase: such queries count in their document


@dataclass(frozen=True)
class Staircase:
    """The loss of every possible cut of one policy on one data set.

    Attributes:
        decisions: (n, K) of a policy.
        best: (n,) of the best relevant result, `_HIGH` if only a higher cut can lose the query, inf if no cut can.
        whole: No query needs a higher cut.
    """

    decisions: Float32
    best: Float32
    whole: bool

    @classmethod
    def of(cls, searched: SearchedSplit, decisions: Float32, largest: float) -> Self:
        """largest: δ that is asked for."""
        relevant = searched.judged.grades >= 1
        best = np.where(relevant, decisions, -np.inf).max(axis=1)
        best[~relevant.any(axis=1)] = np.inf
        highest = np.sort(best)[min(len(best) - 1, int(_REACH * largest * len(best)))]
        low = np.where((best <= highest) | np.isinf(best), best, _HIGH).astype(np.float32)
        return cls(decisions, low, bool((low == best).all()))

    def tau(self, rows: NDArray[np.int64], units: SamplingUnits, delta: float) -> float | None:
        """τ for δ, certified by the queries at these positions; None if there is none."""
        best = self.best[rows]
        lost = np.flatnonzero(best < np.inf)
        steps = LossSteps._stairs(len(rows), lost, best[lost], np.ones(len(lost)), units)
        return self._highest(steps, p_values(steps, delta))

    def lost(self, rows: NDArray[np.int64], tau: float | None) -> float:
        """Return the share of the queries at these positions that a cut loses."""
        return 0.0 if tau is None else float((self.best[rows] < np.float32(tau)).mean())

    def _highest(self, steps: LossSteps, tested: NDArray[np.float64]) -> float | None:
        passes = passed(tested)[steps.places(steps.candidates)]
        if passes.all() and not self.whole:
            raise AssertionError("the staircase is too short")
        first_failure = len(passes) if passes.all() else int(passes.argmin())
        return None if first_failure == 0 else float(steps.candidates[first_failure - 1])
