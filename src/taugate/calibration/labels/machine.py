"""What the model of relevance says of a query: the probability that it is a hit, and that a threshold loses it.

These are scores for prediction-powered estimates. They need not be right, and take the results of a query as
independent, which they are not: human judgements correct for both. A language model's judgements of the results, 0 or
1 each, can stand in for the probabilities.
"""

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.labels.shares import Float64


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

    A query is lost where one of its results is relevant and none of those is kept: Π over kept results of (1 − p), less
    Π over all.

    Args:
        relevance: (q, K) probability of each result, in 0…1.
        decisions: (q, K) decision scores.
        thresholds: (c,), in units of the decision score, which keep a result whose score is not below.
    """
    irrelevant = 1 - relevance.astype(np.float64)
    lost = np.empty((len(relevance), len(thresholds)))
    for column, threshold in enumerate(thresholds):
        lost[:, column] = np.prod(np.where(decisions >= threshold, irrelevant, 1.0), axis=1)
    nothing_relevant: Float64 = np.prod(irrelevant, axis=1, keepdims=True)
    return lost - nothing_relevant


def losses(relevant: NDArray[np.bool_], decisions: NDArray[np.floating], thresholds: NDArray[np.floating]) -> Float64:
    """Return which queries each threshold really loses, (q, c) float64: 1 where it drops every relevant result.

    Args:
        relevant: (q, K), what people say of each result.
        decisions: As of `loss_scores`.
        thresholds: As of `loss_scores`.
    """
    return loss_scores(relevant.astype(np.float64), decisions, thresholds)
