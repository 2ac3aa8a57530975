"""Agreement of two judges: Cohen's κ, with an interval."""

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

_TWO_SIDED_95 = 1.959964  # of the standard normal distribution


class Vote(NamedTuple):
    """The answers of two judges about one result.

    Attributes:
        query: The query of the result.
        first: Whether the first judge finds the result relevant.
        second: Whether the second judge does.
    """

    query: Hashable
    first: bool
    second: bool


class Agreement(NamedTuple):
    """The agreement of two judges.

    Attributes:
        results: Number of results that both have judged.
        equal: Number of these that they agree on.
        kappa: 1 if they agree on everything, 0 if they agree as often as by chance; None if all their answers are the
            same.
        lower: Lower end of the 95 % interval of kappa; None if it cannot be estimated.
        upper: Upper end of the 95 % interval of kappa; None if it cannot be estimated.
    """

    results: int
    equal: int
    kappa: float | None
    lower: float | None = None
    upper: float | None = None


def agreement(votes: Sequence[Vote]) -> Agreement:
    """Compare two judges over the results that both have judged.

    Results of one query are not independent, so the interval is that of the jackknife that leaves out one query at a
    time (Efron and Stein, Annals of Statistics 9, 1981).
    """
    equal = sum(vote.first == vote.second for vote in votes)
    kappa = cohen_kappa(votes)
    by_query: dict[Hashable, list[Vote]] = {}
    for vote in votes:
        by_query.setdefault(vote.query, []).append(vote)
    without = [cohen_kappa([vote for vote in votes if vote.query != query]) for query in by_query]
    estimates = [estimate for estimate in without if estimate is not None]
    if kappa is None or len(estimates) < 2 or len(estimates) < len(without):
        return Agreement(len(votes), equal, kappa)
    mean, n = math.fsum(estimates) / len(estimates), len(estimates)
    error = math.sqrt((n - 1) / n * math.fsum((estimate - mean) ** 2 for estimate in estimates))
    if error < 1e-12:  # no query differs from the others, so the variation between queries is unknown
        return Agreement(len(votes), equal, kappa)
    lower, upper = kappa - _TWO_SIDED_95 * error, kappa + _TWO_SIDED_95 * error
    return Agreement(len(votes), equal, kappa, max(lower, -1.0), min(upper, 1.0))


def cohen_kappa(votes: Sequence[Vote]) -> float | None:
    """Return κ = (p₀ − pₑ) / (1 − pₑ) (Cohen, Educational and Psychological Measurement 20, 1960).

    p₀ is the share of results on which the judges agree, pₑ the share expected if each gave as many of both answers to
    results drawn at random. None if pₑ is 1, as κ has no value then.
    """
    if not votes:
        return None
    n = len(votes)
    observed = sum(vote.first == vote.second for vote in votes) / n
    first, second = sum(vote.first for vote in votes) / n, sum(vote.second for vote in votes) / n
    expected = first * second + (1 - first) * (1 - second)
    return None if expected >= 1 else (observed - expected) / (1 - expected)
