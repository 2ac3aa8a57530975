"""Selection of the queries that people judge: a stratified random sample with known probabilities.

Queries whose results lie near the threshold say the most about it, so they are drawn more often than others. Each
judged query is then weighted by the inverse of its probability, so the estimates hold for all queries (Horvitz and
Thompson, JASA 47, 1952).

A judge who stops early has judged a smaller sample of the same kind. Within a stratum the order is random, so the first
m queries are a simple random sample of it. The order of the strata is settled beforehand, so it does not depend on the
judgements.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Strata = NDArray[np.int64]

# In ascending order of score: a stratum without judgements is joined to a neighbour.
BELOW, NEAR, ABOVE = 0, 1, 2
NAMES = ("below", "near", "above")
# Half of the sample is allocated in proportion to the strata's sizes, so no query counts more than twice the average.
_BY_SIZE = 0.5


def strata_of(decisions: NDArray[np.floating], tau: float | None) -> Strata:
    """Divide queries by the position of their results relative to the threshold; returns (q,) int64, BELOW to ABOVE.

    NEAR is the third of the queries that come closest to τ with any of their results. The others are ABOVE if their
    best result passes τ, and BELOW if it does not. Without a threshold, the three strata are thirds by the best result.

    Args:
        decisions: (q, K) decision scores of each query's results.
        tau: The threshold, in the same units, or None.
    """
    scores = decisions.astype(np.float64)
    best = scores.max(axis=1)
    strata = np.empty(len(scores), dtype=np.int64)
    if tau is None:
        strata[np.argsort(best, kind="stable")] = np.arange(len(best)) * 3 // max(len(best), 1)
        return strata
    strata[:] = np.where(best >= tau, ABOVE, BELOW)
    distance = np.abs(scores - tau).min(axis=1)
    strata[np.argsort(distance, kind="stable")[: -(-len(scores) // 3)]] = NEAR
    return strata


def outcome_deviations(
    strata: Strata, decisions: NDArray[np.floating], tau: float | None, relevance: Float64 | None
) -> Float64:
    """Estimate the standard deviation of outcomes within each stratum (Neyman's S); returns (3,) float64.

    There are two outcomes: a query has a relevant result, and a query has some but τ drops them all. The relevance
    model gives the mean probability p of each in the stratum, taking results as independent. S² is the sum of p·(1 − p)
    over the two.

    Args:
        strata: (q,) stratum of each query.
        decisions: As in `strata_of`.
        tau: As in `strata_of`.
        relevance: (q, K) probability that each result is relevant; None without a model, and then all strata get 1.
    """
    if relevance is None:
        return np.ones(3)
    irrelevant = 1 - relevance
    nothing = irrelevant.prod(axis=1)
    kept = np.ones(decisions.shape, dtype=np.bool_) if tau is None else decisions >= np.float32(tau)
    lost = np.where(kept, irrelevant, 1.0).prod(axis=1) - nothing
    deviations = np.zeros(3)
    for stratum in np.unique(strata):
        shares = np.array([outcome[strata == stratum].mean() for outcome in (1 - nothing, lost)])
        deviations[stratum] = np.sqrt((shares * (1 - shares)).sum())
    return deviations


def stratum_order(sizes: Sequence[int], deviations: Float64, n: int) -> list[int]:
    """Return the stratum of each query of the sample, in order: `n` strata, or fewer if the population is smaller.

    First, two queries are taken from each stratum. After that, half of the sample is allocated in proportion to N_h and
    half in proportion to N_h·S_h, Neyman's allocation (Cochran, Sampling Techniques, 3rd edition, 1977, §5.5). The
    counts in every beginning of the order are rounded by Webster's method.

    Args:
        sizes: Number of queries in each stratum, N_h.
        deviations: (3,) S_h.
        n: Size of the sample.
    """
    by_size = np.array(sizes, dtype=np.float64)
    neyman = by_size * deviations
    if not neyman.sum():
        neyman = by_size
    share = _BY_SIZE * by_size / by_size.sum() + (1 - _BY_SIZE) * neyman / neyman.sum()
    counts, order = [0] * len(sizes), list[int]()
    while len(order) < min(n, sum(sizes)):
        left = [stratum for stratum, size in enumerate(sizes) if counts[stratum] < size]
        short = [stratum for stratum in left if counts[stratum] < 2]
        if short:
            chosen = min(short, key=lambda stratum: (counts[stratum], -share[stratum]))
        else:
            chosen = max(left, key=lambda stratum: float(share[stratum]) / (2 * counts[stratum] + 1))
        counts[chosen] += 1
        order.append(chosen)
    return order


def weights(sizes: Sequence[float], judged: Sequence[int]) -> list[float]:
    """Return the number of queries that each judged query of a stratum stands for, 0 without judged queries.

    That is N_h / m_h. A stratum without judged queries is joined to its nearest neighbour that has some, as surveys
    do with strata in which no one responded (Kalton and Flores-Cervantes, Journal of Official Statistics 19, 2003). So
    the weights of all judged queries always add up to the population.

    Args:
        sizes: Number of queries in each stratum, in ascending order of score.
        judged: Number of judged queries in each.
    """
    judged_strata = [stratum for stratum, count in enumerate(judged) if count]
    joined = [0.0] * len(sizes)
    for stratum, size in enumerate(sizes):
        if judged_strata:
            joined[min(judged_strata, key=lambda judged_stratum: abs(judged_stratum - stratum))] += size
    return [size / count if count else 0.0 for size, count in zip(joined, judged, strict=True)]
