"""Paired losses of queries, baseline − candidate, and what they show of their mean: a p-value and confidence limits.

Where queries share documents the evidence is an e-value by document (`calibration/risk/e_values.py`). Where they do
not, a query is a draw of its own, and exponential tilting of the observed losses is sharper. The p-value of "the mean
loss is the margin or more" is then that of the observed mean under the distribution nearest to the observed one, in
Kullback–Leibler divergence, whose mean is the margin (Efron, "Nonparametric standard errors and confidence intervals",
Can. J. Statist. 9, 1981, §11). Its tail is the saddlepoint formula of Lugannani and Rice in Barndorff-Nielsen's form
(Davison and Hinkley, Bootstrap Methods and their Application, 1997, §9.5). A t-test admits too often here: losses are
rare, and a sample that has few of them by luck has a small variance, too. For losses of 0 and 1 this is the binomial
test.
"""

import math
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from scipy import optimize, stats

from taugate.calibration.metrics.clusters import Labels, PerQuery, SamplingUnits
from taugate.calibration.risk.e_values import DocumentLosses, Statement

# Added to the total loss, in queries: losses come in steps of one query. With it the size stays below 1 − confidence
# whatever share of the queries changes (docs/benchmarks/gate.md).
_CONTINUITY = 0.5
_SMALLEST = 1e-9  # of a saddlepoint, near which the formula divides 0 by 0 and its limit is one half
_MOST = 1e6  # times as many labels: nobody has them, and more is as good as never


class MeanLoss(Protocol):
    """A mean loss, −1…1, with what the sample shows of it."""

    @property
    def mean(self) -> float:
        """Mean loss of the average unit, as observed."""
        ...

    def p_value(self, margin: float) -> float:
        """Return the p-value of "the mean loss is `margin` or more", at most 1."""
        ...

    def upper_limit(self, confidence: float) -> float:
        """Return the one-sided upper limit of the mean loss.

        Args:
            confidence: Of the limit, in 0…1.
        """
        ...

    def lower_limit(self, confidence: float) -> float:
        """Return the one-sided lower limit of the mean loss.

        Args:
            confidence: Of the limit, in 0…1.
        """
        ...

    def times(self, factor: float) -> Self:
        """Return what `factor` times as many units, with losses like these, would show."""
        ...


def paired_losses(losses: PerQuery, units: SamplingUnits, statement: Statement = "document") -> MeanLoss:
    """Choose the evidence for a mean loss: by document where that is the unit, else by exponential tilting.

    Args:
        losses: (q,) float64, baseline − candidate, of the queries of `units`, cut at ±1, as the gate adds up what a
            projection and an index change and no query loses more than all.
        units: What counts as one draw.
        statement: Whose mean is meant where the unit is the document.
    """
    bounded, labels = np.clip(losses, -1.0, 1.0), np.unique(units.labels, return_inverse=True)[1]
    if units.unit == "document":
        return DocumentLosses.from_labels(bounded, labels, statement)
    return QueryLosses.from_labels(bounded, labels)


def least_loss(units: SamplingUnits, confidence: float) -> float:
    """Return the smallest mean loss that queries can exclude: the upper limit of a candidate that changes nothing.

    Args:
        units: The queries, and what counts as one draw among them.
        confidence: Of the limit, in 0…1.
    """
    return paired_losses(np.zeros(len(units)), units).upper_limit(confidence)


def sample_size_factor(losses: MeanLoss, margin: float, alpha: float) -> float | None:
    """Return how many times as many labels would show a mean loss below the margin, were they like these; 1 or more.

    None where no number would: the mean is too near to the margin, or above it.

    Args:
        losses: Evidence that there is.
        margin: Of the mean loss.
        alpha: Level of the test.
    """
    high = 1.0
    while losses.times(high).p_value(margin) > alpha:
        if high >= _MOST:
            return None
        high *= 2
    low = high / 2
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if losses.times(middle).p_value(margin) <= alpha else (middle, high)
    return max(1.0, high)


@dataclass(frozen=True)
class QueryLosses:
    """Paired losses of q queries, −1…1, summed by cluster; evidence by exponential tilting.

    Attributes:
        sums: (c,) float64, total loss and queries of each distinct kind of cluster.
        sizes: (c,) float64, total loss and queries of each distinct kind of cluster.
        counts: (c,) how many clusters are of that kind.
    """

    sums: PerQuery
    sizes: PerQuery
    counts: PerQuery

    @classmethod
    def from_labels(cls, losses: PerQuery, labels: Labels) -> "QueryLosses":
        """Sum losses by cluster.

        Args:
            losses: (q,) float64, −1…1.
            labels: (q,), equal for queries that share a document, which are one draw.
        """
        sums = np.bincount(labels, losses).astype(np.float64)
        pairs: PerQuery = np.column_stack([sums, np.bincount(labels).astype(np.float64)])
        distinct, counts = np.unique(pairs, axis=0, return_counts=True)
        return cls(distinct[:, 0], distinct[:, 1], counts.astype(np.float64))

    @property
    def mean(self) -> float:
        """Mean loss of the average query."""
        return float(self.sums @ self.counts) / float(self.sizes @ self.counts)

    def p_value(self, margin: float) -> float:
        """Return the p-value of "the mean loss is `margin` or more", at most 1."""
        clusters = float(self.counts.sum())
        size = float(self.sizes @ self.counts) / clusters
        excess, counts = self.sums - margin * self.sizes, self.counts
        no_loss = 1.0
        if self.sums.max() <= 0:  # no cluster loses anything, where each would with a probability of `margin` at least
            effective = clusters**2 * size**2 / float(self.sizes**2 @ counts)
            no_loss = float(min(1.0, (1 - margin) ** effective))
        if excess.max() <= 0:
            # No loss above the margin says how losses cluster: one more query is reckoned as lost, or a whole cluster
            # where a query in it is below the margin.
            besides = 1 - margin * size if margin * size < 1 else size * (1 - margin)
            excess, counts = np.append(excess, besides), np.append(counts, 1.0)
        if excess.min() >= 0:  # every cluster loses the margin or more
            return 1.0
        observed = float(excess @ counts + _CONTINUITY) / float(counts.sum())
        return min(no_loss, _lower_tail(excess, counts, observed))

    def times(self, factor: float) -> "QueryLosses":
        """Return what `factor` times as many clusters, with losses like these, would show."""
        return QueryLosses(self.sums, self.sizes, self.counts * factor)

    def upper_limit(self, confidence: float) -> float:
        """Return the one-sided upper limit, where the p-value is 1 − confidence; −1…1, below 0 for a gain."""
        alpha, highest = 1 - confidence, 1 - 1e-9
        if self.mean >= highest or self.p_value(highest) > alpha:
            return 1.0
        return float(optimize.brentq(lambda margin: self.p_value(margin) - alpha, self.mean, highest, xtol=1e-7))

    def lower_limit(self, confidence: float) -> float:
        """Return the one-sided lower limit, −1…1: minus the upper limit of the mean gain.

        Args:
            confidence: Of the limit.
        """
        return -QueryLosses(-self.sums, self.sizes, self.counts).upper_limit(confidence)


def _lower_tail(values: PerQuery, counts: PerQuery, observed: float) -> float:
    """P(mean of n draws ≤ observed) under the tilted distribution of `values` that has mean 0; it has both signs."""
    if observed >= values.max():
        return 1.0
    n = float(counts.sum())
    null, here = _tilt(values, counts, 0.0), _tilt(values, counts, observed)
    saddlepoint = here - null
    if abs(saddlepoint) < _SMALLEST:
        return 0.5
    deviance = saddlepoint * observed - (_cumulant(values, counts, here) - _cumulant(values, counts, null))
    root = math.copysign(math.sqrt(max(0.0, 2 * n * deviance)), saddlepoint)
    studentized = saddlepoint * math.sqrt(n * _variance(values, counts, here))
    if abs(root) < _SMALLEST:
        return 0.5
    return float(stats.norm.cdf(root + math.log(studentized / root) / root))


def _weights(values: PerQuery, counts: PerQuery, tilt: float) -> PerQuery:
    exponents = tilt * values
    weights: PerQuery = counts * np.exp(exponents - exponents.max())
    weights /= weights.sum()
    return weights


def _cumulant(values: PerQuery, counts: PerQuery, tilt: float) -> float:
    """Ln of the mean of exp(tilt · value)."""
    highest = float((tilt * values).max())
    return highest + math.log(float(counts @ np.exp(tilt * values - highest)) / float(counts.sum()))


def _variance(values: PerQuery, counts: PerQuery, tilt: float) -> float:
    weights = _weights(values, counts, tilt)
    return float(weights @ (values - weights @ values) ** 2)


def _tilt(values: PerQuery, counts: PerQuery, mean: float) -> float:
    """The tilt with which the values have this mean, which lies between the least and the largest of them."""
    low, high = -1 / np.ptp(values), 1 / np.ptp(values)

    def off(tilt: float) -> float:
        return float(_weights(values, counts, tilt) @ values) - mean

    while off(low) > 0:
        low *= 2
    while off(high) < 0:
        high *= 2
    return float(optimize.brentq(off, low, high, xtol=1e-12))
