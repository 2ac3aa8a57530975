"""The strictest threshold whose loss stays within a limit, with its interval from few labels.

The loss rises with τ, so a statement about τ is one about the loss at a single threshold, and trying many thresholds
costs nothing:

- The *safe* threshold is found from the lowest candidate upwards, stopping at the first whose upper limit is above δ.
  It is wrong only if the limit fails at the first candidate that truly loses more than δ (fixed-sequence testing, as in
  `calibration/risk/bounds.py`).
- The safe threshold is also the lower end of the interval of the true τ*. Its upper end is found from the highest
  candidate downwards, stopping at the first whose lower limit is not above δ. It is wrong only if the limit fails at τ*
  itself.

This does not replace the certified cut of `calibration/risk`. A certificate is exact and assumes only that queries are
drawn alike. With a machine the limit is approximate: correct for large samples, and by simulation for 25 labels. It
also assumes that unjudged queries are drawn as the judged ones are. Do not take the deeper of the two cuts: each errs
in up to 5 % of the cases, and the deeper one in up to 10 %. Decide which is in force before looking at the labels.

A machine hardly helps with small limits. With fewer than five losses among the labels the exact interval is used, and
100 labels without a single loss allow a limit of 3 %, with a machine or without.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.few_labels.prediction_powered import labels_and_machine
from taugate.calibration.few_labels.shares import JudgedSample, ShareEstimates, UnjudgedSample

_MAX_CANDIDATES = 100


@dataclass(frozen=True)
class ThresholdEstimate:
    """The estimated threshold, in units of the decision score; None stands for no cut at all.

    Attributes:
        safe: Strictest threshold whose loss is at most δ with the requested confidence.
        value: Strictest threshold whose estimated loss is at most δ.
        lowest: Lower end of the two-sided interval of the true threshold, a candidate.
        highest: Upper end of the two-sided interval of the true threshold, a candidate.
    """

    safe: float | None
    value: float | None
    lowest: float | None
    highest: float | None


def candidate_thresholds(decisions: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return candidate thresholds, (c,) float32, ascending: at most 100 quantiles of the best decision scores.

    The statements about them rely on their independence of labels.

    Args:
        decisions: (q, K) decision scores of all queries, judged or not.
    """
    best = decisions.max(axis=1)
    chosen = np.quantile(best, np.linspace(0, 1, min(_MAX_CANDIDATES, len(best))), method="lower")
    return np.unique(chosen.astype(np.float32))


@dataclass(frozen=True)
class LossEstimates:
    """Estimated losses of candidate thresholds.

    Attributes:
        thresholds: (c,) candidates, ascending, in units of the decision score.
        one_sided: Estimates whose upper ends hold with the requested confidence.
        two_sided: Estimates whose intervals hold with the requested confidence.
    """

    thresholds: NDArray[np.floating]
    one_sided: ShareEstimates
    two_sided: ShareEstimates

    @classmethod
    def of(
        cls, thresholds: NDArray[np.floating], judged: JudgedSample, unjudged: UnjudgedSample | None, confidence: float
    ) -> Self:
        """Estimate the loss of each threshold.

        Args:
            thresholds: (c,) candidates, ascending, chosen without looking at labels.
            judged: Losses of judged queries at each threshold, with the machine's scores.
            unjudged: Scores of unjudged queries, None to use the labels alone.
            confidence: Confidence in 0.5…1.

        Raises:
            ValueError: If there is not one outcome for each threshold.
        """
        if len(thresholds) != judged.outcomes.shape[1]:
            raise ValueError(f"there are {len(thresholds)} thresholds, but losses at {judged.outcomes.shape[1]}")
        limits = (labels_and_machine(judged, unjudged, level) for level in (2 * confidence - 1, confidence))
        return cls(thresholds, *limits)

    def strictest(self, max_loss: float) -> ThresholdEstimate:
        """Return the strictest threshold that loses at most a share δ, `max_loss`, of the queries."""
        return ThresholdEstimate(
            safe=self._last_of_first(self.one_sided.upper <= max_loss),
            value=self._last_of_first(self.two_sided.value <= max_loss),
            lowest=self._last_of_first(self.two_sided.upper <= max_loss),
            highest=self._last(self.two_sided.lower <= max_loss),
        )

    def _last_of_first(self, passed: NDArray[np.bool_]) -> float | None:
        """Return the last threshold before the first that does not pass, None if the lowest does not."""
        first_failure = len(passed) if passed.all() else int(passed.argmin())
        return float(self.thresholds[first_failure - 1]) if first_failure else None

    def _last(self, passed: NDArray[np.bool_]) -> float | None:
        """Return the last threshold that passes, None if none does."""
        return float(self.thresholds[passed][-1]) if passed.any() else None
