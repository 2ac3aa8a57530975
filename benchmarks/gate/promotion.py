"""Compute how many held-out queries a promotion rule needs, exactly, by enumerating every outcome."""

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy import stats

from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table
from taugate.calibration.comparison.rule import QuantitySample
from taugate.calibration.comparison.verdicts import mean_difference
from taugate.calibration.settings.rules import CONFIDENCE

HEADING = "Promotion by rule"
_MARGINS = (0.01, 0.02, 0.05)
_POWER = 0.8  # four times in five, the usual power of a trial
_CHANGED = 0.01  # each way, of the same queries
_ACCURACY = 0.9  # of other queries
_STEPS = {500: 5, 5000: 20, math.inf: 100}  # below so many queries: of numbers that are tried
_TAIL = 1e-5  # probability of the outcomes that are left out on either side

Power = Callable[[int], float]


def section(_: Experiment) -> str:
    """Compute the power of each rule by sample size."""
    rows = []
    for margin in _MARGINS:
        paired = _enough(partial(_paired, margin), _normal(2 * _CHANGED, margin))
        unpaired = _enough(partial(_unpaired, margin), _normal(2 * _ACCURACY * (1 - _ACCURACY), margin))
        fewest = math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-margin))
        rows.append([share(margin, 2), f"{fewest:,}", f"{paired:,}", f"{unpaired:,}"])
    return f"""\
A promotion rule ([promotion.md](../promotion.md)) compares releases on held-out queries. How many does one of its clauses need to
recognise a release that is equally good, with {CONFIDENCE * 100:g} % confidence?

- *No query changes*: the fewest with which it can be shown at all.
- *Paired*: both releases answer the same queries, {_CHANGED * 100:g} % are lost and {_CHANGED * 100:g} % won, and four cases of five are recognised.
- *Two samples*: each release answers queries of its own, as many each, with an accuracy of {share(_ACCURACY, 1)}, and four cases of five are
  recognised.

Numbers go up in steps of 5 below 500, of 20 below 5,000 and of 100 above. The table has the first that is enough together with the next
two, as the power does not rise at every step. Queries are independent. Probabilities are exact, except that the outermost {_TAIL * 100:g} % of
outcomes at either end count as not recognised.

{table(["margin", "no query changes", "paired", "two samples"], rows)}
"""


def _normal(variance: float, margin: float) -> int:
    """Approximate the number of queries by the normal distribution, which gives fewer than the test takes."""
    found: int = math.ceil(variance * ((stats.norm.ppf(CONFIDENCE) + stats.norm.ppf(_POWER)) / margin) ** 2)
    return found


def _enough(power: Power, start: int) -> int:
    step = next(step for below, step in _STEPS.items() if start < below)
    queries = math.ceil(start / step) * step
    reached = 0
    while reached < 3:
        reached = reached + 1 if power(queries) >= _POWER else 0
        queries += step
    return queries - 3 * step


def _paired(margin: float, queries: int) -> float:
    """Lost ~ Binomial(queries, changed), won among the others."""

    def holds(lost: int, won: int) -> bool:
        before, after = np.zeros(queries), np.zeros(queries)
        before[:lost] = 1
        after[lost : lost + won] = 1
        return mean_difference(_sample(before), _sample(after), CONFIDENCE).upper <= margin

    total, fewest = 0.0, 0
    for lost in _outcomes(queries, _CHANGED):
        others = queries - lost
        fewest = _boundary(partial(holds, lost), fewest, others)
        p = stats.binom.pmf(lost, queries, _CHANGED)
        total += float(p * stats.binom.sf(fewest - 1, others, _CHANGED / (1 - _CHANGED)))
    return total


def _unpaired(margin: float, queries: int) -> float:
    """Hits of both releases ~ Binomial(queries, accuracy)."""

    def holds(old: int, new: int) -> bool:
        hits = np.arange(queries)
        return mean_difference(_sample(hits < old), _sample(hits < new, queries), CONFIDENCE).upper <= margin

    outcomes = _outcomes(queries, _ACCURACY)
    total, fewest = 0.0, bisect_left(range(queries + 1), True, key=partial(holds, outcomes.start))
    for old in outcomes:
        fewest = _boundary(partial(holds, old), fewest, queries)
        p = stats.binom.pmf(old, queries, _ACCURACY)
        total += float(p * stats.binom.sf(fewest - 1, queries, _ACCURACY))
    return total


def _boundary(holds: Callable[[int], bool], near: int, most: int) -> int:
    """The smallest number with which it holds, the upper limit + 1 if it never does: no fewer than for one outcome before."""
    while near <= most and not holds(near):
        near += 1
    return near


def _outcomes(queries: int, p: float) -> range:
    low, high = (int(stats.binom.ppf(tail, queries, p)) for tail in (_TAIL, 1 - _TAIL))
    return range(low, high + 1)


def _sample(values: np.ndarray, first: int = 0) -> QuantitySample:
    queries = np.arange(len(values))
    return QuantitySample(values.astype(np.float64), (first + queries).astype(np.uint64), queries)
