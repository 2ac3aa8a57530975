"""How probable it was that a result was shown and judged: what a judgement of it weighs.

Users judge what they are shown, and more often what stands first. A result that is seldom judged has to speak for all
that nobody judged, so each judgement weighs the inverse of its probability (Horvitz and Thompson, 1952; for position
bias Joachims, Swaminathan and Schnabel, "Unbiased Learning-to-Rank with Biased Feedback", WSDM 2017).
"""

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

Float64 = NDArray[np.float64]


def judged_by_place(shown: Sequence[int], judged: Sequence[int]) -> Float64:
    """Estimate the probability that a user judges a result, by its place in the reply, (places,) float64.

    It never rises from one place to the next: users read from the top, and what seems otherwise is chance. Half a
    judgement is added at each place, so that a rare place has neither 0 nor 1.

    Args:
        shown: How many results were shown at each place, the first one first.
        judged: How many of these were judged.
    """
    seen = np.asarray(shown, dtype=np.float64)
    share = (np.asarray(judged, dtype=np.float64) + 0.5) / (seen + 1)
    decreasing: Float64 = isotonic_regression(share, weights=seen + 1, increasing=False).x
    return decreasing


def enough_votes(probabilities: Iterable[float], votes: int) -> float:
    """Return the probability that at least so many of several users judge a result.

    Args:
        probabilities: That each user does, independently.
        votes: How many are needed, 1 or more.
    """
    below = np.zeros(votes)  # the probabilities of 0, 1, … votes so far
    below[0] = 1.0
    enough = 0.0  # added up, as 1 less the rest may round to 0
    for each in probabilities:
        enough += float(below[-1]) * each
        below[1:] = below[1:] * (1 - each) + below[:-1] * each
        below[0] *= 1 - each
    return enough


def most_weight(weights: Collection[float]) -> float:
    """Return the limit of weights, √n times their mean, n their number, so that no query decides alone.

    The rule is that of truncated importance sampling (Ionides, Journal of Computational and Graphical Statistics 17,
    2008): the error that it makes vanishes as the number of queries grows.

    Args:
        weights: Of queries, one at least.
    """
    return sum(weights) / math.sqrt(len(weights))
