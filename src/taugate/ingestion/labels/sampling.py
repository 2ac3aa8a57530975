"""Choose the queries that people judge: a stratified random sample in which each query's probability is known.

Queries whose results lie near the threshold say the most about it, so they are asked more often than others. Each
judged query then counts by the inverse of its probability, and the estimates are those of all queries (Horvitz and
Thompson, JASA 47, 1952).

The order of the sample is such that whoever stops early has judged a smaller sample of the same kind. Within a stratum
the order is random, so the first m queries are a simple random sample of it. Which stratum comes next is settled
beforehand, so it does not depend on the answers.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Strata = NDArray[np.int64]

# In this order along the scale: a stratum of which nothing was judged is joined to a neighbour.
BELOW, NEAR, ABOVE = 0, 1, 2
NAMES = ("below", "near", "above")
# Half of the sample is divided by the strata's sizes alone, so that no query counts more than twice the average.
_BY_SIZE = 0.5


def strata_of(decisions: NDArray[np.floating], tau: float | None) -> Strata:
    """Divide queries by where their results lie on the scale of the threshold; returns (q,) int64, BELOW to ABOVE.

    NEAR is the third of the queries with a result closest to τ. The others are ABOVE if their best result passes τ,
    and BELOW if it does not. Without a threshold, the three strata are thirds by the best result.

    Args:
        decisions: (q, K) decision scores of each query's results.
        tau: The threshold, in the same units; None for none.
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


def spreads(strata: Strata, decisions: NDArray[np.floating], tau: float | None, relevance: Float64 | None) -> Float64:
    """Guess how much the outcomes of a stratum's queries differ, (3,) float64: Neyman's S.

    There are two outcomes: a query has a relevant result, and τ drops all of those. The model of relevance gives the
    probability p of each, with the results taken as independent, and S² is the sum of both p·(1 − p).

    Args:
        strata: (q,) of each query.
        decisions: As in `strata_of`.
        tau: As in `strata_of`.
        relevance: (q, K) probability that each result is relevant; None without a model: then the spread is the same
            everywhere.
    """
    if relevance is None:
        return np.ones(3)
    irrelevant = 1 - relevance
    nothing = irrelevant.prod(axis=1)
    kept = np.ones(decisions.shape, dtype=np.bool_) if tau is None else decisions >= np.float32(tau)
    lost = np.where(kept, irrelevant, 1.0).prod(axis=1) - nothing
    found = np.zeros(3)
    for stratum in np.unique(strata):
        shares = np.array([each[strata == stratum].mean() for each in (1 - nothing, lost)])
        found[stratum] = np.sqrt((shares * (1 - shares)).sum())
    return found


def turns(sizes: Sequence[int], spread: Float64, most: int) -> list[int]:
    """Return the strata in the order in which they give a query, `most` of them or fewer.

    Each stratum gives two queries first. After that, the strata take turns so that half of the sample goes by N_h and
    half by Neyman's allocation N_h·S_h (Cochran, Sampling Techniques, 3rd edition, 1977, §5.5), rounded by Webster's
    method at every length.

    Args:
        sizes: Queries of each stratum, N_h.
        spread: (3,) S_h.
        most: Size of the whole sample.
    """
    by_size = np.array(sizes, dtype=np.float64)
    neyman = by_size * spread
    if not neyman.sum():
        neyman = by_size
    share = _BY_SIZE * by_size / by_size.sum() + (1 - _BY_SIZE) * neyman / neyman.sum()
    given, order = [0] * len(sizes), list[int]()
    while len(order) < min(most, sum(sizes)):
        left = [each for each, size in enumerate(sizes) if given[each] < size]
        few = [each for each in left if given[each] < 2]
        if few:
            chosen = min(few, key=lambda each: (given[each], -share[each]))
        else:
            chosen = max(left, key=lambda each: float(share[each]) / (2 * given[each] + 1))
        given[chosen] += 1
        order.append(chosen)
    return order


def weights(sizes: Sequence[float], judged: Sequence[int]) -> list[float]:
    """Return how many queries each judged query of a stratum stands for; 0 for a stratum that has none.

    That is N_h / m_h. A stratum of which nothing is judged is joined to its nearest neighbour that has some, as is done
    for strata without an answer (Kalton and Flores-Cervantes, Journal of Official Statistics 19, 2003). So the weights
    of all judged queries always add up to the population.

    Args:
        sizes: Queries in each stratum, in the order of the scale.
        judged: How many of them are judged.
    """
    some = [each for each, count in enumerate(judged) if count]
    joined = [0.0] * len(sizes)
    for stratum, size in enumerate(sizes):
        if some:
            joined[min(some, key=lambda each: abs(each - stratum))] += size
    return [size / count if count else 0.0 for size, count in zip(joined, judged, strict=True)]
