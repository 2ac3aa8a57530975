"""Paired losses of queries, baseline − candidate, with a p-value and confidence limits for their mean.

If queries share documents, the evidence is an e-value by document (`calibration/risk/e_values.py`). Otherwise queries
are independent, and exponential tilting of the observed losses is sharper. The p-value of "the mean loss is the margin
or more" is then that of the observed mean under the distribution with this margin as its mean that is nearest to the
observed one in Kullback–Leibler divergence (Efron, "Nonparametric standard errors and confidence intervals", Can. J.
Statist. 9, 1981, §11). Its tail is the saddlepoint formula of Lugannani and Rice in Barndorff-Nielsen's form (Davison
and Hinkley, Bootstrap Methods and their Application, 1997, §9.5). A t-test accepts too often here: losses are rare, and
a sample that has few of them by luck has a small variance, too. For losses of 0 and 1 this is the binomial test.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from taugate.calibration.metrics.clusters import ClusterIds, PerQuery, SamplingUnits
from taugate.calibration.risk.e_values import DocumentLosses, Statement

# Added to the total loss, in queries, because losses come in steps of one query. With it the size of the test is below
# 1 − confidence for any share of changed queries (docs/benchmarks/gate.md).
_CONTINUITY = 0.5
_SMALLEST = 1e-9  # saddlepoint below which the formula divides 0 by 0; its limit is one half
_MAX_FACTOR = 1e6  # times as many labels as there are: no data set grows so much


@dataclass(frozen=True)
class QueryLosses:
    """Paired losses of q queries, −1…1, summed by cluster; evidence by exponential tilting.

    Attributes:
        sums: (c,) float64, total loss of each distinct kind of cluster.
        sizes: (c,) float64, number of queries of each distinct kind of cluster.
        counts: (c,) number of clusters of each kind.
    """

    sums: PerQuery
    sizes: PerQuery
    counts: PerQuery

    @classmethod
    def from_clusters(cls, losses: PerQuery, cluster_ids: ClusterIds) -> "QueryLosses":
        """Sum losses by cluster.

        Args:
            losses: (q,) float64, −1…1.
            cluster_ids: (q,), equal for queries that share a document, which are one draw.
        """
        sums = np.bincount(cluster_ids, losses).astype(np.float64)
        pairs: PerQuery = np.column_stack([sums, np.bincount(cluster_ids).astype(np.float64)])
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
        if self.sums.max() <= 0:  # no cluster loses anything, though each would with a probability of at least `margin`
            effective = clusters**2 * size**2 / float(self.sizes**2 @ counts)
            no_loss = float(min(1.0, (1 - margin) ** effective))
        if excess.max() <= 0:
            # No loss above the margin shows how losses cluster, so one more query counts as lost, or a whole cluster
            # if a single query is below the margin.
            added = 1 - margin * size if margin * size < 1 else size * (1 - margin)
            excess, counts = np.append(excess, added), np.append(counts, 1.0)
        if excess.min() >= 0:  # every cluster loses the margin or more
            return 1.0
        observed = float(excess @ counts + _CONTINUITY) / float(counts.sum())
        return min(no_loss, _lower_tail(excess, counts, observed))

    def times(self, factor: float) -> "QueryLosses":
        """Return the evidence of `factor` times as many clusters with losses like these."""
        return QueryLosses(self.sums, self.sizes, self.counts * factor)

    def upper_limit(self, confidence: float) -> float:
        """Return the one-sided upper limit, −1…1: the margin whose p-value is 1 − confidence; below 0 for a gain."""
        alpha, highest = 1 - confidence, 1 - 1e-9
        if self.mean >= highest or self.p_value(highest) > alpha:
            return 1.0
        return float(optimize.brentq(lambda margin: self.p_value(margin) - alpha, self.mean, highest, xtol=1e-7))

    def lower_limit(self, confidence: float) -> float:
        """Return the one-sided lower limit, −1…1: minus the upper limit of the mean gain."""
        return -QueryLosses(-self.sums, self.sizes, self.counts).upper_limit(confidence)


MeanLoss = DocumentLosses | QueryLosses


def paired_losses(losses: PerQuery, units: SamplingUnits, statement: Statement = "document") -> MeanLoss:
    """Choose the evidence for a mean loss: by document if that is the unit, else by exponential tilting.

    Args:
        losses: (q,) float64, baseline − candidate, of the queries of `units`. They are clipped to ±1, because the gate
            adds up the losses of a projection and an index, and a query cannot lose more than everything.
        units: Sampling units of the queries.
        statement: Unit of the mean if the evidence is by document.
    """
    bounded, cluster_ids = np.clip(losses, -1.0, 1.0), np.unique(units.clusters, return_inverse=True)[1]
    if units.unit == "document":
        return DocumentLosses.from_clusters(bounded, cluster_ids, statement)
    return QueryLosses.from_clusters(bounded, cluster_ids)


def min_detectable_loss(units: SamplingUnits, confidence: float) -> float:
    """Return the smallest mean loss that queries can exclude: the upper limit of a candidate that changes nothing."""
    return paired_losses(np.zeros(len(units)), units).upper_limit(confidence)


def sample_size_factor(losses: MeanLoss, margin: float, alpha: float) -> float | None:
    """Return the factor by which labels like these have to grow to show a mean loss below the margin, at least 1.

    None if no number of labels is enough because the mean is too near to the margin or above it.

    Args:
        losses: Available evidence.
        margin: Margin of the mean loss.
        alpha: Level of the test.
    """
    high = 1.0
    while losses.times(high).p_value(margin) > alpha:
        if high >= _MAX_FACTOR:
            return None
        high *= 2
    low = high / 2
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if losses.times(middle).p_value(margin) <= alpha else (middle, high)
    return max(1.0, high)


def _lower_tail(values: PerQuery, counts: PerQuery, observed: float) -> float:
    """Return P(mean of n draws ≤ observed) under the tilted distribution of `values`, of both signs, with mean 0."""
    if observed >= values.max():
        return 1.0
    n = float(counts.sum())
    null_tilt, observed_tilt = _tilt(values, counts, 0.0), _tilt(values, counts, observed)
    saddlepoint = observed_tilt - null_tilt
    if abs(saddlepoint) < _SMALLEST:
        return 0.5
    deviance = saddlepoint * observed - (
        _cumulant(values, counts, observed_tilt) - _cumulant(values, counts, null_tilt)
    )
    root = math.copysign(math.sqrt(max(0.0, 2 * n * deviance)), saddlepoint)
    studentized = saddlepoint * math.sqrt(n * _variance(values, counts, observed_tilt))
    if abs(root) < _SMALLEST:
        return 0.5
    return float(stats.norm.cdf(root + math.log(studentized / root) / root))


def _weights(values: PerQuery, counts: PerQuery, tilt: float) -> PerQuery:
    exponents = tilt * values
    weights: PerQuery = counts * np.exp(exponents - exponents.max())
    weights /= weights.sum()
    return weights


def _cumulant(values: PerQuery, counts: PerQuery, tilt: float) -> float:
    """Return ln of the mean of exp(tilt · value)."""
    highest = float((tilt * values).max())
    return highest + math.log(float(counts @ np.exp(tilt * values - highest)) / float(counts.sum()))


def _variance(values: PerQuery, counts: PerQuery, tilt: float) -> float:
    weights = _weights(values, counts, tilt)
    return float(weights @ (values - weights @ values) ** 2)


def _tilt(values: PerQuery, counts: PerQuery, mean: float) -> float:
    """Return the tilt with which the values have this mean, which lies between the smallest and the largest value."""
    low, high = -1 / np.ptp(values), 1 / np.ptp(values)

    def off(tilt: float) -> float:
        return float(_weights(values, counts, tilt) @ values) - mean

    while off(low) > 0:
        low *= 2
    while off(high) < 0:
        high *= 2
    return float(optimize.brentq(off, low, high, xtol=1e-12))
