"""Evidence about mean losses: a test by document, and paired losses of queries with a p-value and limits.

Evidence by document: a test of a mean loss that allows for losses that were not observed. Queries about one document
may be lost together, for example when it leaves the corpus. So the unit is the document, and nothing is assumed about
the loss of its queries except its bounds. A bet on "the mean loss is below δ" starts with a wealth of 1. A document
with n queries, of which L are lost, multiplies it by

    1 + λ·(δ·n − L)    with 0 ≤ λ ≤ 1 / b, and b the largest L − δ·n that is possible.

If the mean loss is δ or more, the expected wealth is at most 1, so the wealth reaches 1 / α with a probability of at
most α (Markov). The wealth is an e-value (Vovk and Wang, "E-values: Calibration, combination and applications", Ann.
Statist. 49, 2021; for bounded means: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
betting", JRSS B 86, 2024). A bootstrap or a tilted distribution gives no weight to a loss that no labelled document
had; a bet does.

This holds whether the numbers of queries are chance or given. If documents are drawn independently and E L ≥ δ·E n,
each factor has an expectation of at most 1. If the numbers n of D documents are given and Σ E L ≥ δ·Σ n, the product of
the D expectations is at most the D-th power of their mean (arithmetic and geometric mean), which is at most 1.

b has to hold for documents that were not drawn as well, or a document with very many queries could lose more than all
labelled ones together without ever being seen. So the statement counts a document for a limited number of queries
(`SamplingUnits.capped`). Within this limit, b is taken from the labelled documents: no other document is assumed to
have a larger L − δ·n. Losses are paired, so a document can lose only answers that were found. If the average document
is meant, n is 1 and L its mean loss.

The best λ depends on the distribution of losses, which is not known in advance. For a cut, whose losses rise with τ,
the initial wealth is split among several bets. A paired comparison has one bet. Its λ depends on the margin, the level
and the numbers of documents and queries, and on no loss, so the theorem holds. It is the λ with which the most
documents may be lost whole. With too few documents to lose any, it is the largest, so that a candidate that loses
nothing passes whenever the exact binomial test would.

If no two queries share a document, they are independent, and exponential tilting of the observed losses is sharper. The
p-value of "the mean loss is the margin or more" is then that of the observed mean under the distribution with this
margin as its mean that is nearest to the observed one in Kullback–Leibler divergence (Efron, "Nonparametric standard
errors and confidence intervals", Can. J. Statist. 9, 1981, §11). Its tail is the saddlepoint formula of Lugannani and
Rice in Barndorff-Nielsen's form (Davison and Hinkley, Bootstrap Methods and their Application, 1997, §9.5). A t-test
accepts too often here: losses are rare, and a sample that has few of them by luck has a small variance, too. For losses
of 0 and 1 this is the binomial test.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from taugate.evidence.clusters import ClusterIds, PerQuery, SamplingUnits
from taugate.evidence.rules import CONFIDENCE

Statement = Literal["document", "query"]
Array = NDArray[np.float64]

# λ·b and the share of the initial wealth. The largest λ gains most if nothing is lost, and loses almost everything on
# one document that has the largest loss. On seven public sets, cuts kept no fewer results with (1, .9, .6), (1, .9, .7)
# and (1, .95, .9).
_MIXTURE = np.array([[1 - 1e-6, 0.5], [0.95, 0.3], [0.7, 0.2]])
# Against a share of one half or more, such as that of unanswerable queries answered, most documents lose, and smaller
# bets grow fastest: for losses of 0 and 1 with mean p, λ·b = (δ − p) / δ (Kelly, Bell Syst. Tech. J. 35, 1956), which
# is .06 for p = .85 and .11 for p = .8 if δ = .9.
_AGAINST_MOST = np.array([[1 - 1e-6, 0.5], [0.1, 0.3], [0.03, 0.2]])
# Values of λ·b for a paired comparison. At a margin of .005, candidates about as good as the baseline pass in .69 of
# the trials, on average over worlds of 600 to 5,000 documents that did not choose, against .64 with _MIXTURE.
_STAKES = np.append(np.arange(1, 100) / 100, [0.995, 0.999, 0.9999, 1 - 1e-6])
_MAX_MARGIN = 1 - 1e-9  # the largest margin tested; an upper limit above it is given as 1
_SCANNED = 64  # margins at which an upper limit looks for the last one that is not excluded

# Added to the total loss, in queries, because losses come in steps of one query. With it the size of the test is below
# 1 − confidence for any share of changed queries (benchmarks/results/gate.md).
_CONTINUITY = 0.5
_SMALLEST = 1e-9  # saddlepoint below which the formula divides 0 by 0; its limit is one half
_MAX_FACTOR = 1e6  # times as many labels as there are: no data set grows so much


@dataclass(frozen=True)
class DocumentBets:
    """The bets of the mixture against a mean loss of δ or more."""

    delta: float  # δ, −1…1
    rates: Array  # (b,) λ of each bet
    shares: Array  # (b,) share of the initial wealth of each bet

    @classmethod
    def against(cls, delta: float, losable: Array, sizes: Array, requested: float = 1.0) -> Self:
        """Choose λ for a mean loss of δ.

        `losable`, the largest loss of each document, and `sizes`, its number n of queries, are (d,). δ is in −1…1, and
        `requested` the largest margin that sets λ.
        """
        mixture = _MIXTURE if delta < 0.5 else _AGAINST_MOST
        largest = float((losable - min(delta, requested) * sizes).max())
        return cls(delta, mixture[:, 0] / max(largest, 1e-9), mixture[:, 1])  # nothing is at stake if not above 0

    @classmethod
    def planned(cls, delta: float, sizes: Array, counts: Array, level: float, requested: float = 1.0) -> Self:
        """Choose one λ against a mean loss of δ: the one with which the most documents may be lost whole.

        `sizes`, the number n of queries, all of which can be lost, and `counts`, the number of such documents, are
        (k,), for each kind of document. `level` is that at which δ is to be excluded.
        """
        margin = min(delta, requested)
        if margin <= 0:
            return cls.against(delta, sizes, sizes, requested)
        largest = (1 - margin) * float(sizes.max())
        lossless: Array = np.log1p(np.outer(_STAKES / largest, margin * sizes)) @ counts
        allowed = (lossless + math.log(level)) / -np.log1p(-_STAKES)
        return cls(delta, _STAKES[[allowed.argmax()]] / largest, np.ones(1))

    def log_wealth(self, losses: Array, sizes: Array) -> Array:
        """Return ln(1 + λ·(δ·n − L)), (b, …); its sum over documents is the logarithm of the wealth.

        `losses` is (…) losses L; `sizes` is (…) numbers n of queries of these documents.
        """
        rates = self.rates.reshape(-1, *(1 for _ in range(sizes.ndim)))
        wealth: Array = np.log1p(rates * (self.delta * sizes - losses))
        return wealth

    def log_e(self, wealth: Array) -> Array:
        """Return the logarithm of the e-value, the mixture over bets.

        Returns float64 in the shape of `wealth` less its first axis. `wealth` is (b, …) sums of `log_wealth` over
        documents.
        """
        shares = np.log(self.shares).reshape(-1, *(1 for _ in range(wealth.ndim - 1)))
        total: Array = special.logsumexp(wealth + shares, axis=0)
        return total


@dataclass(frozen=True)
class DocumentLosses:
    """Losses of queries, −1…1, as one bounded term for each document."""

    losses: PerQuery  # (k,) loss L of the queries of a document, or its mean
    sizes: PerQuery  # (k,) number n of these queries, or 1
    counts: PerQuery  # (k,) number of documents with this loss and size
    losable: PerQuery  # (k,) largest loss of such a document
    level: float | None = None  # level that a paired comparison is planned for; None for the mixture of a cut

    @classmethod
    def from_clusters(cls, losses: PerQuery, cluster_ids: ClusterIds, statement: Statement = "document") -> Self:
        """Add up paired losses by document; every query can lose everything.

        `losses` are (q,) float64, −1…1; the mean is over documents or over queries, by the statement.
        """
        used, document, counts = np.unique(cluster_ids, return_inverse=True, return_counts=True)
        sums, sizes = np.bincount(document, losses).astype(np.float64), counts.astype(np.float64)
        if statement == "document":
            sums, sizes = sums / sizes, np.ones(len(used))
        return cls.from_documents(sums, sizes, sizes)

    @classmethod
    def from_documents(cls, losses: PerQuery, sizes: PerQuery, losable: PerQuery) -> Self:
        """Count the distinct kinds of documents, by their (d,) losses, sizes and largest losses."""
        kinds, counts = np.unique(np.column_stack([losses, sizes, losable]), axis=0, return_counts=True)
        return cls(kinds[:, 0], kinds[:, 1], counts.astype(np.float64), kinds[:, 2])

    @property
    def mean(self) -> float:
        """Mean loss per document or per query, as the statement says."""
        return float(self.losses @ self.counts) / float(self.sizes @ self.counts)

    def p_value(self, margin: float, requested: float = 1.0) -> float:
        """Return the p-value of "the mean loss is `margin` or more": 1 / e-value, at most 1.

        `requested` is the largest margin that sets λ.
        """
        if self.level is None:
            bets = DocumentBets.against(margin, self.losable, self.sizes, requested)
        else:
            bets = DocumentBets.planned(margin, self.sizes, self.counts, self.level, requested)
        wealth = bets.log_wealth(self.losses, self.sizes) @ self.counts
        return float(np.exp(-max(0.0, float(bets.log_e(wealth)))))

    def upper_limit(self, confidence: float, requested: float = 1.0) -> float:
        """Return the one-sided upper limit, −1…1: the largest margin whose p-value is above 1 − confidence.

        λ depends on the margin, so the p-value need not fall everywhere as the margin rises. All margins above the
        limit are excluded. `requested` is the largest margin that sets λ. If it is excluded, so are larger ones, by the
        same λ.
        """
        alpha = 1 - confidence
        if self.mean >= _MAX_MARGIN or self.p_value(_MAX_MARGIN, requested) > alpha:
            return 1.0
        low = max(self.mean, -_MAX_MARGIN)
        excluded = _MAX_MARGIN
        for margin in low + (_MAX_MARGIN - low) * np.linspace(1, 0, _SCANNED)[1:] ** 3:  # denser near the mean
            if self.p_value(margin, requested) > alpha:
                low = float(margin)
                break
            excluded = float(margin)
        return float(optimize.brentq(lambda margin: self.p_value(margin, requested) - alpha, low, excluded, xtol=1e-15))

    def lower_limit(self, confidence: float) -> float:
        """Return the one-sided lower limit, −1…1: minus the upper limit of the mean gain."""
        return -replace(self, losses=-self.losses, losable=self.sizes).upper_limit(confidence)

    def times(self, factor: float) -> "DocumentLosses":
        """Return the evidence of `factor` times as many documents like these."""
        return replace(self, counts=self.counts * factor)


@dataclass(frozen=True)
class QueryLosses:
    """Paired losses of q queries, −1…1, summed by cluster; evidence by exponential tilting."""

    sums: PerQuery  # (c,) total loss of each distinct kind of cluster
    sizes: PerQuery  # (c,) number of queries of each distinct kind of cluster
    counts: PerQuery  # (c,) number of clusters of each kind

    @classmethod
    def from_clusters(cls, losses: PerQuery, cluster_ids: ClusterIds) -> "QueryLosses":
        """Sum losses by cluster.

        `losses` is (q,) float64, −1…1; `cluster_ids` is (q,), equal for queries that share a document, which are one
        draw.
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


def paired_losses(
    losses: PerQuery, units: SamplingUnits, statement: Statement = "document", level: float = 1 - CONFIDENCE
) -> MeanLoss:
    """Choose the evidence for a mean loss: by document if that is the unit, else by exponential tilting.

    `losses` are (q,) float64, baseline − candidate. They are clipped to ±1, because the gate adds up the losses of a
    projection and an index, and a query cannot lose more than everything. `statement` is the unit of the mean if the
    evidence is by document, `level` that at which a margin is to be excluded.
    """
    bounded, cluster_ids = np.clip(losses, -1.0, 1.0), np.unique(units.clusters, return_inverse=True)[1]
    if units.unit == "document":
        return replace(DocumentLosses.from_clusters(bounded, cluster_ids, statement), level=level)
    return QueryLosses.from_clusters(bounded, cluster_ids)


def min_detectable_loss(units: SamplingUnits, confidence: float) -> float:
    """Return the smallest mean loss that queries can exclude: the upper limit of a candidate that changes nothing."""
    return paired_losses(np.zeros(len(units)), units, level=1 - confidence).upper_limit(confidence)


def sample_size_factor(losses: MeanLoss, margin: float, alpha: float) -> float | None:
    """Return the factor by which labels like these have to grow to show a mean loss below the margin, at least 1.

    None if no number of labels is enough because the mean is too near to the margin or above it.
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
