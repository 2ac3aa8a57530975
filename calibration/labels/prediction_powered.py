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

Judged and unjudged queries have to be random samples of the same queries, those that users ask. Generated queries are
others, and belong to neither. All choices were made on simulated queries (docs/benchmarks/few-labels.md).
"""

import math

import numpy as np

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
FEWEST_OUTCOMES = 5
# An interval that is wider than the labels' own by more than this factor is dropped for the labels' own.
MOST_WIDENING = 1.05
_CONSTANT = 1e-12  # a variance below it is that of scores that are all the same


def labels_and_machine(judged: JudgedSample, unjudged: UnjudgedSample | None, confidence: float) -> ShareEstimates:
    """Estimate shares from labels and machine together, or from the labels alone where that is better or safer.

    The labels alone decide where there are no unjudged queries, where fewer than five judged queries have the outcome
    or fewer than five do not have it, and where the interval would be more than 5 % wider than theirs.

    judged: what people judged; unjudged: other queries that users asked, None without any; confidence: of each
    two-sided interval, in 0…1. Raises ValueError where the samples have different outcomes.
    """
    alone = labels_alone(judged, confidence)
    if unjudged is None or not len(unjudged.scores):
        return alone
    together = prediction_powered(judged, unjudged, confidence)
    having = judged.outcomes.sum(axis=0)
    enough = np.minimum(having, len(judged.outcomes) - having) >= FEWEST_OUTCOMES
    taken = enough & (together.width <= MOST_WIDENING * alone.width)

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
    """Estimate shares by PPI++ with the three changes of this module, whatever the machine is worth.

    The variance has two parts, each with the design effect of its documents: the error of the machine on judged
    queries, and the spread of its scores over unjudged ones. That a document has queries of both kinds adds nothing to
    it, as the λ that is fitted leaves an error that does not go with the scores.

    judged: what people judged; unjudged: other queries that users asked; confidence: of each two-sided interval, in
    0…1. Raises ValueError where the samples have different outcomes.
    """
    y, f, unseen = judged.outcomes, judged.scores, unjudged.scores
    if f.shape[1] != unseen.shape[1]:
        raise ValueError(f"judged queries have {f.shape[1]} outcomes, and unjudged ones {unseen.shape[1]}")
    n = len(y)
    share_of_labels = n / len(unseen)
    weights = _cross_fitted_weights(judged) / (1 + share_of_labels)
    corrected = y - weights * (f - unseen.mean(axis=0))
    value = corrected.mean(axis=0)
    errors = np.maximum(np.square(corrected - value).sum(axis=0), -math.log(1 - confidence))
    weight = weights.mean(axis=0)
    effect, unseen_effect = design_effect(judged.documents), design_effect(unjudged.documents)
    variance = effect * errors / n + unseen_effect * share_of_labels * np.square(weight) * unseen.var(axis=0)
    worth = n * np.maximum(y.var(axis=0), _CONSTANT) / variance
    value = np.clip(value, 0.0, 1.0)
    lower, upper = clopper_pearson(value, worth, confidence)
    return ShareEstimates(value, lower, upper, worth, weight)


def _cross_fitted_weights(judged: JudgedSample) -> Float64:
    """Return for each query the slope of y on f over the labels about other documents, (n, c); 0 where it would fall.

    A machine that is wrong more often than right gets no say, rather than being believed the other way round.
    """
    y, f = judged.outcomes, judged.scores
    document = np.unique(judged.documents, return_inverse=True)[1]
    count = (len(y) - np.bincount(document))[document][:, None].astype(np.float64)

    def others(values: Float64) -> Float64:
        """Sum over the queries about other documents than each query's own, (n, c)."""
        own = np.zeros((int(document.max()) + 1, values.shape[1]))
        np.add.at(own, document, values)
        rest: Float64 = values.sum(axis=0) - own[document]
        return rest

    centred = f - f.mean(axis=0)  # what is summed stays small, so that little is lost to rounding
    sum_f, sum_y, count = others(centred), others(y), np.maximum(count, 1.0)
    together = others(centred * y) - sum_f * sum_y / count
    spread = others(np.square(centred)) - np.square(sum_f) / count
    slope = np.divide(together, spread, out=np.zeros_like(together), where=spread > _CONSTANT * count)
    return np.maximum(slope, 0.0)
