"""Scores of queries from the relevance of their results: probability of a hit, and of a loss at a threshold.

These are scores for prediction-powered estimates. They may be wrong, and they treat the results of a query as
independent, which they are not: human judgements correct for both. A language model's judgements of the results, 0 or
1, can replace the probabilities.
"""

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.few_labels.shares import Float64


def hit_scores(relevance: NDArray[np.floating]) -> Float64:
    """Return for each query the probability that one of its results is relevant, (q, 1) float64: 1 − Π (1 − p).

    Args:
        relevance: (q, K) probability of each result, in 0…1.
    """
    none: Float64 = np.prod(1 - relevance.astype(np.float64), axis=1, keepdims=True)
    return 1 - none


def loss_scores(
    relevance: NDArray[np.floating], decisions: NDArray[np.floating], thresholds: NDArray[np.floating]
) -> Float64:
    """Return for each query and threshold the probability that the threshold loses it, (q, c) float64.

    A query is lost if it has a relevant result and no relevant result is kept: Π over kept results of (1 − p), less Π
    over all.

    Args:
        relevance: (q, K) probability of each result, in 0…1.
        decisions: (q, K) decision scores.
        thresholds: (c,) thresholds of the decision score; a result whose score is not below is kept.
    """
    irrelevant = 1 - relevance.astype(np.float64)
    lost = np.empty((len(relevance), len(thresholds)))
    for column, threshold in enumerate(thresholds):
        lost[:, column] = np.prod(np.where(decisions >= threshold, irrelevant, 1.0), axis=1)
    nothing_relevant: Float64 = np.prod(irrelevant, axis=1, keepdims=True)
    return lost - nothing_relevant


def losses(relevant: NDArray[np.bool_], decisions: NDArray[np.floating], thresholds: NDArray[np.floating]) -> Float64:
    """Return the true loss of each query at each threshold, (q, c) float64: 1 if every relevant result is dropped.

    Args:
        relevant: (q, K), judgements by people.
        decisions: (q, K) decision scores.
        thresholds: (c,) thresholds of the decision score.
    """
    return loss_scores(relevant.astype(np.float64), decisions, thresholds)
