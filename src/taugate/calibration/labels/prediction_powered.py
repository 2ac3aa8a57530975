"""Shares of queries from a few human judgements and many scores of a machine, with intervals that hold all the same.

The machine may be wrong as often as it likes: human judgements say how wrong it is on average, and its mean is
corrected by that. This is prediction-powered inference with power tuning, PPI++ (Angelopoulos, Duchi and Zrnic, "PPI++:
Efficient Prediction-Powered Inference", 2023):

    estimate = mean of y over judged queries + λ · (mean of f over unjudged queries − mean of f over judged queries)

y is 1 for a query with the outcome (it is a hit, or lost at τ) and else 0; f is what the machine says of it. λ says how
far the machine is believed: 0 leaves the mean of the labels. Three things are not as in the paper, which speaks of many
labels; these functions are for 25 to 100.

- λ is fitted for each document on the labels of all others: cross-fitting with one document left out. A λ that has seen
  a query makes its error look smaller than it is.
- A machine without a mistake on a few labels may still make some elsewhere. So its squared errors never add up to less
  than −ln(1 − confidence): 3 at 95 %, the rule of three (Hanley and Lippman-Hand, JAMA 249, 1983).
- The normal interval is too short here. Instead the variance says how many labels alone would be as good, and the exact
  interval for so many labels is taken, around the estimate (as Korn and Graubard do for surveys, Survey Methodology 24,
  1998). Where the machine is of no use, that is the labels' own interval.

Queries may be judged with unequal probabilities, as `taugate judge` does near a threshold. Then each mean over judged
queries is weighted, and so is each squared error (by w², as the linearised variance has it: Cochran, Sampling
Techniques, 1977, §6.3). Where some judged queries have no answer, y is replaced by y − share·a, a being 1 for an
answerable query: the share is a ratio, and this is its linearisation. The machine's scores need not know which queries
have no answer. With equal weights and answers to all, both leave the numbers as they are.

Judged and unjudged queries together have to be a random sample of the queries that users ask, whose judged part was
drawn with probabilities that the weights tell. Generated queries are others, and belong to neither. All choices were
made on simulated queries (docs/benchmarks/few-labels.md).
"""

import math

import numpy as np
from scipy.special import stdtrit

from taugate.calibration.labels.shares import (
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
# An interval that is wider than the labels' own by more than this factor is dropped for the labels' own.
MAX_WIDENING = 1.05
_CONSTANT = 1e-12  # a variance below it is that of scores that are all the same


def labels_and_machine(judged: JudgedSample, unjudged: UnjudgedSample | None, confidence: float) -> ShareEstimates:
    """Estimate shares from labels and machine together, or from the labels alone where that is better or safer.

    The labels alone decide where there are no unjudged queries, where fewer than five judged queries have the outcome
    or fewer than five answerable ones do not have it, and where the interval would be more than 5 % wider than theirs.

    Args:
        judged: What people judged.
        unjudged: Other queries that users asked, None without any.
        confidence: Of each two-sided interval, in 0…1.

    Raises:
        ValueError: Where the samples have different outcomes.
    """
    alone = labels_alone(judged, confidence)
    if unjudged is None or not len(unjudged.scores):
        return alone
    together = prediction_powered(judged, unjudged, confidence)
    enough = np.minimum(judged.having, judged.lacking) >= MIN_OUTCOMES
    taken = enough & (together.width <= MAX_WIDENING * alone.width)

    def choose(powered: Float64, own: Float64) -> Float64:
        return np.where(taken, powered, own)

    return ShareEstimates(
        value=choose(together.value, alone.value),
        lower=choose(together.lower, alone.lower),
        upper=choose(together.upper, alone.upper),
        worth=choose(together.worth, alone.worth),
        weight=choose(together.weight, alone.weight),
    )


def prediction_powered(judged: JudgedSample, unjudged: UnjudgedSample, confidence: float) -> ShareEstimates:
    """Estimate shares by PPI++ with the changes of this module, whatever the machine is worth.

    The variance has two parts, each with the design effect of its documents: the error of the machine on judged
    queries, and the spread of its scores over unjudged ones. That a document has queries of both kinds adds nothing to
    it, as the λ that is fitted leaves an error that does not go with the scores.

    Args:
        judged: What people judged.
        unjudged: Other queries that users asked.
        confidence: Of each two-sided interval, in 0…1.

    Raises:
        ValueError: Where the samples have different outcomes.
    """
    f, unseen = judged.scores, unjudged.scores
    if f.shape[1] != unseen.shape[1]:
        raise ValueError(f"judged queries have {f.shape[1]} outcomes, and unjudged ones {unseen.shape[1]}")
    n, w, base = len(f), judged.relative_weights[:, None], judged.base[:, None]
    shares, answerable = judged.shares, (w * base).mean()
    share_of_labels = n / len(unseen)
    weights = _cross_fitted_weights(judged, judged.outcomes - shares * base) / (1 + share_of_labels)
    # Queries that are judged more often than others are rarer among the unjudged ones: their scores are given back.
    expected = unseen.mean(axis=0) - share_of_labels * ((w - 1) * f).mean(axis=0)
    said = weights * (f - expected)
    value = shares - (w * said).mean(axis=0) / answerable
    squares = np.square(w * (judged.outcomes - value * base - said)).sum(axis=0)
    errors = np.maximum(squares, -math.log(1 - confidence) * np.square(w).mean())
    weight = (w * weights).mean(axis=0)
    effect = design_effect(judged.documents, judged.relative_weights)
    of_machine = share_of_labels * np.square(weight) * unseen.var(axis=0) * design_effect(unjudged.documents)
    variance = (effect * errors / n + of_machine) / answerable**2
    worth = n * np.maximum(shares * (1 - shares), _CONSTANT) / variance * _of_unequal_weights(judged, confidence)
    value = np.clip(value, 0.0, 1.0)
    lower, upper = clopper_pearson(value, worth, confidence)
    return ShareEstimates(value, lower, upper, worth, weight)


def _of_unequal_weights(judged: JudgedSample, confidence: float) -> float:
    """Return by how much the variance of few heavy queries is less well known than that of as many equal ones, 0…1.

    Korn and Graubard's factor: the squared ratio of the quantiles of Student's t with n − 1 degrees of freedom, and
    with those of the queries that the weights leave. It is 1 where weights are equal.
    """
    n, tail = len(judged.documents), (1 + confidence) / 2
    left = min(judged.worth, n)
    return float((stdtrit(max(n - 1, 1), tail) / stdtrit(max(left - 1, 1), tail)) ** 2)


def _cross_fitted_weights(judged: JudgedSample, residuals: Float64) -> Float64:
    """Return for each query the slope on f over the labels about other documents, (n, c); 0 where it would fall.

    A machine that is wrong more often than right gets no say, rather than being believed the other way round. Squared
    weights fit the line, as they make up the variance that it is to reduce.

    Args:
        residuals: (n, c) float64, y less what its share explains.
    """
    f, squared = judged.scores, np.square(judged.relative_weights)[:, None]
    document = np.unique(judged.documents, return_inverse=True)[1]

    def others(values: Float64) -> Float64:
        """Sum over the queries about other documents than each query's own, (n, c)."""
        own = np.zeros((int(document.max()) + 1, values.shape[1]))
        np.add.at(own, document, values)
        rest: Float64 = values.sum(axis=0) - own[document]
        return rest

    centred = f - f.mean(axis=0)  # what is summed stays small, so that little is lost to rounding
    total = others(squared)
    count = np.where(total > _CONSTANT * squared.sum(), total, 1.0)  # else every query is about one document
    sum_f, sum_y = others(squared * centred), others(squared * residuals)
    together = others(squared * centred * residuals) - sum_f * sum_y / count
    spread = others(squared * np.square(centred)) - np.square(sum_f) / count
    slope = np.divide(together, spread, out=np.zeros_like(together), where=spread > _CONSTANT * count)
    return np.maximum(slope, 0.0)
