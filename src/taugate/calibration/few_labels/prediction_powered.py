"""Shares of queries from few human judgements and many machine scores, with intervals that do not trust the machine.

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
made on simulated queries (docs/research/few-labels.md).
"""

import math

import numpy as np
from scipy.special import stdtrit

from taugate.calibration.few_labels.shares import (
    Float64,
    JudgedSample,
    ShareEstimates,
    UnjudgedSample,
    clopper_pearson,
    design_effect,
    labels_alone,
)

# With fewer hits, or fewer misses, a variance cannot be estimated.
MIN_OUTCOMES = 5
# If an interval is wider than the labels' own by more than this factor, the labels' own is used.
MAX_WIDENING = 1.05
_CONSTANT = 1e-12  # a smaller variance means that all scores are equal


def labels_and_machine(judged: JudgedSample, unjudged: UnjudgedSample | None, confidence: float) -> ShareEstimates:
    """Estimate shares from labels and machine together, or from the labels alone if that is better or safer.

    The labels alone decide if there are no unjudged queries, if fewer than five judged queries have the outcome or
    fewer than five answerable ones do not have it, or if the interval would be more than 5 % wider than theirs.

    Args:
        judged: The judged queries.
        unjudged: The unjudged queries, None if there are none.
        confidence: Confidence of each two-sided interval, in 0…1.

    Raises:
        ValueError: If the samples have different outcomes.
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
    because the fitted λ leaves an error that is uncorrelated with the scores.

    Args:
        judged: The judged queries.
        unjudged: The unjudged queries.
        confidence: Confidence of each two-sided interval, in 0…1.

    Raises:
        ValueError: If the samples have different outcomes.
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
    """Return the factor in 0…1 by which unequal weights make the variance less certain, 1 if weights are equal.

    Korn and Graubard's factor: the squared ratio of the quantiles of Student's t with n − 1 degrees of freedom and with
    those of the effective number of queries.
    """
    n, tail = len(judged.documents), (1 + confidence) / 2
    left = min(judged.effective_labels, n)
    return float((stdtrit(max(n - 1, 1), tail) / stdtrit(max(left - 1, 1), tail)) ** 2)


def _cross_fitted_weights(judged: JudgedSample, residuals: Float64) -> Float64:
    """Return for each query the slope on f over the labels about other documents, (n, c), at least 0.

    A machine that is wrong more often than right gets the weight 0 instead of a negative one. Squared weights fit the
    line, because they make up the variance that the line has to reduce.

    Args:
        judged: The judged queries.
        residuals: (n, c) float64, y less the part that its share explains.
    """
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
