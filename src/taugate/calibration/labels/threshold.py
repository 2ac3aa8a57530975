"""The strictest threshold whose loss stays within a limit, and how sure a few labels are of it.

The loss rises with τ, so each statement about τ is one about the loss at one place, and trying many thresholds costs
nothing:

- The *safe* threshold is found from the lowest candidate upwards, stopping at the first whose upper limit is above δ.
  It is wrong only where the limit fails at the first candidate that really loses more than δ (fixed-sequence testing,
  as in `calibration/risk/bounds.py`).
- The interval of the true τ* has this at its lower end. Its upper end is found from the highest candidate downwards,
  stopping at the first whose lower limit is not above δ. It is wrong only where the limit fails at τ* itself.

This does not replace the certified cut of `calibration/risk`. A certificate is exact and assumes only that queries are
drawn alike. With a machine the limit is approximate: right for large samples, and by simulation for 25 labels. It also
assumes that unjudged queries are drawn as the judged ones are. Nor may one take whichever of the two cuts deeper: each
errs in up to 5 % of the cases, and the deeper one in up to 10 %. Settle which is in force before looking at the labels.

A machine hardly helps with small limits. With fewer than five losses among the labels the exact interval is used, and
100 labels without a single loss allow a limit of 3 %, with a machine or without.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.labels.prediction_powered import labels_and_machine
from taugate.calibration.labels.shares import JudgedSample, ShareEstimates, UnjudgedSample

_MAX_CANDIDATES = 100


@dataclass(frozen=True)
class ThresholdEstimate:
    """The estimated threshold, in units of the decision score; None stands for no cut at all.

    Attributes:
        safe: Strictest threshold whose loss is at most δ with the confidence asked for.
        value: Strictest one whose estimated loss is at most δ.
        lowest: Ends of the two-sided interval of the true one, as candidates.
        highest: Ends of the two-sided interval of the true one, as candidates.
    """

    safe: float | None
    value: float | None
    lowest: float | None
    highest: float | None


def candidate_thresholds(decisions: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return thresholds worth a look, ascending: quantiles of the best decision scores, at most 100.

    They depend on no label, which the statements about them rely on.

    Args:
        decisions: (q, K) decision scores of all queries, judged or not.

    Returns:
        (c,) float32.
    """
    best = decisions.max(axis=1)
    chosen = np.quantile(best, np.linspace(0, 1, min(_MAX_CANDIDATES, len(best))), method="lower")
    return np.unique(chosen.astype(np.float32))


@dataclass(frozen=True)
class LossEstimates:
    """Estimated losses of candidate thresholds.

    Attributes:
        thresholds: (c,) candidates, ascending, in units of the decision score.
        one_sided: Estimates whose upper ends hold with the confidence asked for.
        two_sided: Estimates whose intervals do.
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
            judged: Losses of judged queries at each, with the machine's scores of them.
            unjudged: Scores of other queries that users asked, None to use the labels alone.
            confidence: In 0.5…1.

        Raises:
            ValueError: Where there is not one outcome for each threshold.
        """
        if len(thresholds) != judged.outcomes.shape[1]:
            raise ValueError(f"{len(thresholds)} thresholds, and losses at {judged.outcomes.shape[1]}")
        limits = (labels_and_machine(judged, unjudged, level) for level in (2 * confidence - 1, confidence))
        return cls(thresholds, *limits)

    def strictest(self, most: float) -> ThresholdEstimate:
        """Return the strictest threshold that loses at most a share δ of the queries.

        Args:
            most: δ, in 0…1.
        """
        return ThresholdEstimate(
            safe=self._last_of_first(self.one_sided.upper <= most),
            value=self._last_of_first(self.two_sided.value <= most),
            lowest=self._last_of_first(self.two_sided.upper <= most),
            highest=self._last(self.two_sided.lower <= most),
        )

    def _last_of_first(self, passed: NDArray[np.bool_]) -> float | None:
        """Return the last threshold before the first that does not pass, None where the lowest does not."""
        first_failure = len(passed) if passed.all() else int(passed.argmin())
        return float(self.thresholds[first_failure - 1]) if first_failure else None

    def _last(self, passed: NDArray[np.bool_]) -> float | None:
        """Return the last threshold that passes, None where none does."""
        return float(self.thresholds[passed][-1]) if passed.any() else None
