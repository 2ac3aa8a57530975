"""Shares of queries and the strictest threshold, from few human judgements and many machine scores.

The machine may be wrong: human judgements show how wrong it is on average, and correct its mean. This is
prediction-powered inference with power tuning, PPI++ (Angelopoulos, Duchi and Zrnic, "PPI++: Efficient
Prediction-Powered Inference", 2023):

    estimate = mean of y over judged queries + λ · (mean of f over unjudged queries − mean of f over judged queries)

y is 1 for a query with the outcome (it is a hit, or lost at τ) and else 0; f is the machine's score. λ weights the
machine: 0 leaves the mean of the labels. Three details differ from the paper, which assumes many labels; these
    functions
are for 25 to 100.

- λ is fitted for each document on the labels of all other documents: leave-one-document-out cross-fitting. A λ that has
  seen a query makes its error look too small.
- A machine without a mistake on a few labels may still make some on other queries. So its squared errors never add up
  to less than −ln(1 − confidence): 3 at 95 %, the rule of three (Hanley and Lippman-Hand, JAMA 249, 1983).
- The normal interval is too short for few labels. Instead the variance is converted to a number of labels of the same
  precision, and the exact interval for that number is taken around the estimate (as Korn and Graubard do for surveys,
  Survey Methodology 24, 1998). If the machine does not help, that is the labels' own interval.

Queries may be judged with unequal probabilities, as `taugate judge` does near a threshold. Then each mean over judged
queries is weighted, and so is each squared error (by w², from the linearised variance: Cochran, Sampling Techniques,
1977, §6.3). If some judged queries have no answer, y is replaced by y − share·a with a = 1 for an answerable query: the
share is a ratio, and this is its linearisation. The machine need not know which queries have no answer. With equal
weights and only answerable queries, neither changes the numbers.

Judged and unjudged queries together have to be a random sample of the queries that users ask, and the judged part has
to be drawn with the probabilities that the weights state. Generated queries belong to neither part. All choices were
made on simulated queries (benchmarks/decisions.md).

The strictest threshold whose loss stays within a limit, with its interval from few labels. The loss rises with τ, so a
statement about τ is one about the loss at a single threshold, and trying many thresholds costs nothing:

- The *safe* threshold is found from the lowest candidate upwards, stopping at the first whose upper limit is above δ.
  It is wrong only if the limit fails at the first candidate that truly loses more than δ (fixed-sequence testing, as in
  `evidence/risk/certify.py`).
- The safe threshold is also the lower end of the interval of the true τ*. Its upper end is found from the highest
  candidate downwards, stopping at the first whose lower limit is not above δ. It is wrong only if the limit fails at τ*
  itself.

This does not replace the certified cut of `evidence/risk`. A certificate is exact and assumes only that queries are
drawn alike. With a machine the limit is approximate: correct for large samples, and by simulation for 25 labels. It
also assumes that unjudged queries are drawn as the judged ones are. Do not take the deeper of the two cuts: each errs
in up to 5 % of the cases, and the deeper one in up to 10 %. Decide which is in force before looking at the labels.

A machine hardly helps with small limits. With fewer than five losses among the labels the exact interval is used, and
100 labels without a single loss allow a limit of 3 %, with a machine or without.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from taugate.evidence.few_labels.shares import (
    JudgedSample,
    ShareEstimates,
    UnjudgedSample,
    clopper_pearson,
    design_effect,
    labels_alone,
)
from taugate.policy.arrays import Float64

# With fewer hits, or fewer misses, a variance cannot be estimated.
MIN_OUTCOMES = 5
# If an interval is wider than the labels' own by more than this factor, the labels' own is used.
MAX_WIDENING = 1.05
_CONSTANT = 1e-12  # a smaller variance means that all scores are equal

_MAX_CANDIDATES = 100


def labels_and_machine(judged: JudgedSample, unjudged: UnjudgedSample | None, confidence: float) -> ShareEstimates:
    """Estimate shares from labels and machine together, or from the labels alone if that is better or safer.

    The labels alone decide if there are no unjudged queries, if fewer than five judged queries have the outcome or
    fewer than five answerable ones do not have it, or if the interval would be more than 5 % wider than theirs. The
    confidence is that of each two-sided interval. Raises ValueError if the samples have different outcomes.
    """
    alone = labels_alone(judged, confidence)
    if unjudged is None or not len(unjudged.scores):
        return alone
    together = prediction_powered(judged, unjudged, confidence)
    enough = np.minimum(judged.having, judged.lacking) >= MIN_OUTCOMES
    use_machine = enough & (together.width <= MAX_WIDENING * alone.width)

    def choose(powered: Float64, from_labels: Float64) -> Float64:
        return np.where(use_machine, powered, from_labels)

    return ShareEstimates(
        value=choose(together.value, alone.value),
        lower=choose(together.lower, alone.lower),
        upper=choose(together.upper, alone.upper),
        effective_labels=choose(together.effective_labels, alone.effective_labels),
        weight=choose(together.weight, alone.weight),
    )


def prediction_powered(judged: JudgedSample, unjudged: UnjudgedSample, confidence: float) -> ShareEstimates:
    """Estimate shares by PPI++ with the changes of this module, even if the machine does not help.

    The variance has two parts, each with the design effect of its documents: the error of the machine on judged
    queries, and the variance of its scores over unjudged ones. Documents with queries of both kinds add nothing,
    because the fitted λ leaves an error that is uncorrelated with the scores. The confidence is that of each two-sided
    interval. Raises ValueError if the samples have different outcomes.
    """
    f, unseen = judged.scores, unjudged.scores
    if f.shape[1] != unseen.shape[1]:
        raise ValueError(f"judged queries have {f.shape[1]} outcomes, but unjudged ones have {unseen.shape[1]}")
    n, w, base = len(f), judged.relative_weights[:, None], judged.base[:, None]
    shares, answerable = judged.shares, (w * base).mean()
    share_of_labels = n / len(unseen)
    weights = _cross_fitted_weights(judged, judged.outcomes - shares * base) / (1 + share_of_labels)
    # Queries that are judged more often than average are rarer among the unjudged ones; this adds their scores again.
    expected = unseen.mean(axis=0) - share_of_labels * ((w - 1) * f).mean(axis=0)
    correction = weights * (f - expected)
    value = shares - (w * correction).mean(axis=0) / answerable
    squares = np.square(w * (judged.outcomes - value * base - correction)).sum(axis=0)
    errors = np.maximum(squares, -math.log(1 - confidence) * np.square(w).mean())
    weight = (w * weights).mean(axis=0)
    effect = design_effect(judged.documents, judged.relative_weights)
    of_machine = share_of_labels * np.square(weight) * unseen.var(axis=0) * design_effect(unjudged.documents)
    variance = (effect * errors / n + of_machine) / answerable**2
    effective_labels = (
        n * np.maximum(shares * (1 - shares), _CONSTANT) / variance * _of_unequal_weights(judged, confidence)
    )
    value = np.clip(value, 0.0, 1.0)
    lower, upper = clopper_pearson(value, effective_labels, confidence)
    return ShareEstimates(value, lower, upper, effective_labels, weight)


def _of_unequal_weights(judged: JudgedSample, confidence: float) -> float:
    """Return the factor in 0…1 by which unequal weights make the variance less certain, 1 if weights are equal."""
    # Korn and Graubard's factor: the squared ratio of the quantiles of Student's t with n − 1 degrees of freedom and
    # with those of the effective number of queries.
    n, tail = len(judged.documents), (1 + confidence) / 2
    left = min(judged.effective_labels, n)
    return float((stdtrit(max(n - 1, 1), tail) / stdtrit(max(left - 1, 1), tail)) ** 2)


def _cross_fitted_weights(judged: JudgedSample, residuals: Float64) -> Float64:
    """Return for each query the slope on f over the labels about other documents, (n, c), at least 0."""
    # A machine that is wrong more often than right gets the weight 0 instead of a negative one. Squared weights fit the
    # line, because they make up the variance that the line has to reduce. `residuals` is (n, c) float64, y less the
    # part that its share explains.
    f, squared = judged.scores, np.square(judged.relative_weights)[:, None]
    document = np.unique(judged.documents, return_inverse=True)[1]

    def leave_out(values: Float64) -> Float64:
        """Sum over the queries about all documents but each query's own, (n, c)."""
        by_document = np.zeros((int(document.max()) + 1, values.shape[1]))
        np.add.at(by_document, document, values)
        remaining: Float64 = values.sum(axis=0) - by_document[document]
        return remaining

    centred = f - f.mean(axis=0)  # keeps the sums small, and with them the rounding error
    total = leave_out(squared)
    count = np.where(total > _CONSTANT * squared.sum(), total, 1.0)  # 1.0: all queries are about one document
    sum_f, sum_y = leave_out(squared * centred), leave_out(squared * residuals)
    together = leave_out(squared * centred * residuals) - sum_f * sum_y / count
    variation = leave_out(squared * np.square(centred)) - np.square(sum_f) / count
    slope = np.divide(together, variation, out=np.zeros_like(together), where=variation > _CONSTANT * count)
    return np.maximum(slope, 0.0)


@dataclass(frozen=True)
class ThresholdEstimate:
    """The estimated threshold, in units of the decision score; None stands for no cut at all."""

    safe: float | None  # strictest threshold whose loss is at most δ with the requested confidence
    value: float | None  # strictest threshold whose estimated loss is at most δ
    lowest: float | None  # lower end of the two-sided interval of the true threshold, a candidate
    highest: float | None  # upper end of the two-sided interval of the true threshold, a candidate


def candidate_thresholds(decisions: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return candidate thresholds, (c,) float32, ascending: at most 100 quantiles of the best decision scores.

    The statements about them rely on their independence of labels. `decisions` is (q, K) decision scores of all
    queries, judged or not.
    """
    best = decisions.max(axis=1)
    chosen = np.quantile(best, np.linspace(0, 1, min(_MAX_CANDIDATES, len(best))), method="lower")
    return np.unique(chosen.astype(np.float32))


@dataclass(frozen=True)
class LossEstimates:
    """Estimated losses of candidate thresholds."""

    thresholds: NDArray[np.floating]  # (c,) candidates, ascending, in units of the decision score
    one_sided: ShareEstimates  # estimates whose upper ends hold with the requested confidence
    two_sided: ShareEstimates  # estimates whose intervals hold with the requested confidence

    @classmethod
    def of(
        cls, thresholds: NDArray[np.floating], judged: JudgedSample, unjudged: UnjudgedSample | None, confidence: float
    ) -> Self:
        """Estimate the loss of each threshold.

        `thresholds` are (c,) ascending candidates, chosen without looking at labels; the outcomes of the samples are
        the losses at each. Without `unjudged`, the labels alone decide. The confidence is in 0.5…1. Raises ValueError
        if there is not one outcome for each threshold.
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
