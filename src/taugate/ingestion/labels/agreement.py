"""How far two judges agree: Cohen's κ, with an interval."""

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

_TWO_SIDED_95 = 1.959964  # of the standard normal distribution


class Vote(NamedTuple):
    """The answers of two judges about one result: its query, and whether each judge finds the result relevant."""

    query: Hashable
    one: bool
    other: bool


class Agreement(NamedTuple):
    """The agreement of two judges.

    Attributes:
        results: How many both have judged.
        equal: How many of these they agree on.
        kappa: 1 where they agree on everything, 0 where they agree as often as by chance; None where both give the same
            one answer throughout.
        lower: 95 % interval of kappa; None where it cannot be estimated.
        upper: 95 % interval of kappa; None where it cannot be estimated.
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

    Args:
        votes: A pair of answers for each result.
    """
    equal = sum(each.one == each.other for each in votes)
    kappa = cohen_kappa(votes)
    by_query: dict[Hashable, list[Vote]] = {}
    for vote in votes:
        by_query.setdefault(vote.query, []).append(vote)
    without = [cohen_kappa([each for each in votes if each.query != query]) for query in by_query]
    known = [each for each in without if each is not None]
    if kappa is None or len(known) < 2 or len(known) < len(without):
        return Agreement(len(votes), equal, kappa)
    mean, n = math.fsum(known) / len(known), len(known)
    error = math.sqrt((n - 1) / n * math.fsum((each - mean) ** 2 for each in known))
    if error < 1e-12:  # no query differs from the others: so few say nothing about the rest
        return Agreement(len(votes), equal, kappa)
    lower, upper = kappa - _TWO_SIDED_95 * error, kappa + _TWO_SIDED_95 * error
    return Agreement(len(votes), equal, kappa, max(lower, -1.0), min(upper, 1.0))


def cohen_kappa(votes: Sequence[Vote]) -> float | None:
    """Return κ = (p₀ − pₑ) / (1 − pₑ) (Cohen, Educational and Psychological Measurement 20, 1960).

    p₀ is the share of results on which the judges agree, pₑ the share expected if each gave as many of both answers to
    results drawn at random. None where pₑ is 1, and κ has no value.

    Args:
        votes: A pair of answers for each result.
    """
    if not votes:
        return None
    n = len(votes)
    observed = sum(each.one == each.other for each in votes) / n
    one, other = (sum(each) / n for each in zip(*((vote.one, vote.other) for vote in votes), strict=True))
    expected = one * other + (1 - one) * (1 - other)
    return None if expected >= 1 else (observed - expected) / (1 - expected)
