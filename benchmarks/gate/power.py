"""Compute what the gate admits, exactly: every way in which queries win or lose accuracy is enumerated."""

from functools import cache

import numpy as np
from scipy import stats

from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict
from taugate.evidence.risk.losses import QueryLosses

HEADING = "The gate itself"
_ALPHA = 0.05
# Queries and margin; then the share of queries that change, as a multiple of the margin, when the loss is the margin.
_CASES = ((1000, 0.01), (2000, 0.005), (2000, 0.01), (5000, 0.005))
_MULTIPLES = (1.0, 1.1, 1.5, 2.0, 3.0, 4.0, 5.0)
_SIZES = (500, 1000, 2000, 5000, 10_000)
_MARGINS = (0.0025, 0.005, 0.01, 0.02)
_CHANGED = (0.0, 0.005, 0.01, 0.02)  # each way


def section(_: Experiment) -> str:
    """Compute the probability of admission by loss and by number of queries."""
    sizes = [
        [f"{queries:,}", share(margin), *(share(_at_margin(queries, margin, each)) for each in _MULTIPLES)]
        for queries, margin in _CASES
    ]
    worst = max(_at_margin(queries, margin, each) for queries, margin in _CASES for each in _MULTIPLES)
    power = [
        [
            share(margin, 4),
            share(changed),
            *(share(_probability(queries, margin, changed, changed)) for queries in _SIZES),
        ]
        for margin in _MARGINS
        for changed in _CHANGED
    ]
    target = _probability(5000, 0.005, 0.01, 0.01)
    known = _known(5000, 0.005, 0.01)
    return f"""\
One metric, independent queries, 95 % confidence. The probabilities are exact: the table adds up the multinomial probability of every
number of queries lost and won.

### A true loss exactly at the margin

How often does the gate admit a candidate whose true loss is exactly the margin? It promises at most .05; the highest is {share(worst)}, {verdict(reached=worst <= _ALPHA)}.
The columns say how many queries change, as a multiple of the margin: at 1 all of them are lost, at 5 three are lost for every two won.

{table(["queries", "margin", *(f"{each:g} ×" for each in _MULTIPLES)], sizes)}

### No true loss

How often does the gate admit a candidate that loses nothing? As many queries are won as lost; "change each way" is the share of each.
This shows how many labels a decision takes.

{table(["margin", "change each way", *(f"{queries:,} queries" for queries in _SIZES)], power)}

The target is .80 at a margin of half a point, with 1 % changing each way and 5,000 queries: {share(target)}, {verdict(reached=target >= 0.8)}. A test
that knew the share of changes would reach {share(known)}, so little more is possible. The rest is the price of a promise that holds for
every share of changes.
"""


def _at_margin(queries: int, margin: float, multiple: float) -> float:
    changed = margin * multiple
    return _probability(queries, margin, (changed + margin) / 2, (changed - margin) / 2)


@cache
def _probability(queries: int, margin: float, lose: float, win: float) -> float:
    """Compute the probability of being admitted: lost ~ Binomial(queries, lose), won among the others."""
    most_lost, most_won = (int(stats.binom.ppf(1 - 1e-9, queries, p)) + 1 if p else 1 for p in (lose, win))
    total = 0.0
    for lost in range(most_lost):
        passes = np.array([_admitted(queries, margin, lost, won) for won in range(most_won)])
        p_won = stats.binom.pmf(np.arange(most_won), queries - lost, win / (1 - lose))
        total += float(stats.binom.pmf(lost, queries, lose) * p_won[passes].sum())
    return total


@cache
def _admitted(queries: int, margin: float, lost: int, won: int) -> bool:
    if (lost - won) / queries >= margin:
        return False
    counts = np.array([lost, won, queries - lost - won], dtype=float)
    there = counts > 0
    losses = QueryLosses(np.array([1.0, -1.0, 0.0])[there], np.ones(int(there.sum())), counts[there])
    return losses.p_value(margin) <= _ALPHA


def _known(queries: int, margin: float, changed: float) -> float:
    """Power of the most powerful test against the same share of change, by the normal approximation."""
    null, alternative = np.sqrt((2 * changed - margin**2) / queries), np.sqrt(2 * changed / queries)
    return float(stats.norm.cdf((margin - stats.norm.ppf(1 - _ALPHA) * null) / alternative))
