"""Probability that a result was shown and judged, which gives the weight of a judgement.

Users judge results that they are shown, and more often those at the top. A result that is seldom judged has to stand
for all that were not judged, so each judgement weighs the inverse of its probability (Horvitz and Thompson, 1952; for
position bias Joachims, Swaminathan and Schnabel, "Unbiased Learning-to-Rank with Biased Feedback", WSDM 2017).
"""

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

Float64 = NDArray[np.float64]


def judged_by_place(shown: Sequence[int], judged: Sequence[int]) -> Float64:
    """Estimate the probability that a user judges a result, by its place in the reply, (places,) float64.

    It never rises from one place to the next: users read from the top, so an increase is chance. Half a judgement is
    added at each place, so that a rare place has neither 0 nor 1.

    Args:
        shown: Number of results shown at each place, the first one first.
    """
    seen = np.asarray(shown, dtype=np.float64)
    share = (np.asarray(judged, dtype=np.float64) + 0.5) / (seen + 1)
    decreasing: Float64 = isotonic_regression(share, weights=seen + 1, increasing=False).x
    return decreasing


def enough_votes(probabilities: Iterable[float], votes: int) -> float:
    """Return the probability that at least `votes` of several users judge a result.

    Args:
        probabilities: Probability that each user does, independently.
        votes: Number of users needed, 1 or more.
    """
    below = np.zeros(votes)  # the probabilities of 0, 1, … votes so far
    below[0] = 1.0
    enough = 0.0  # added up, as 1 - sum(below) may round to 0
    for probability in probabilities:
        enough += float(below[-1]) * probability
        below[1:] = below[1:] * (1 - probability) + below[:-1] * probability
        below[0] *= 1 - probability
    return enough


def max_weight(weights: Collection[float]) -> float:
    """Return the limit of weights, √n times the mean of n weights, so that no single query decides."""
    # The rule is that of truncated importance sampling (Ionides, Journal of Computational and Graphical Statistics 17,
    # 2008): the error that it makes vanishes as the number of queries grows.
    return sum(weights) / math.sqrt(len(weights))
