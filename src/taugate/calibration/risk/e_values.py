"""Evidence by document: a test of a mean loss that allows for losses that were not observed.

Queries about one document may be lost together, for example when it leaves the corpus. So the unit is the document,
with the mean loss x of its queries, and nothing is assumed about x except its bounds. A bet on "the mean loss is below
δ" starts with a wealth of 1, which each document multiplies by a factor. If the mean loss is δ or more, the expected
wealth is at most 1, so the wealth reaches 1 / α with a probability of at most α (Markov). The wealth is an e-value
(Vovk and Wang, "E-values: Calibration, combination and applications", Ann. Statist. 49, 2021; for bounded means:
Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024). A bootstrap or a
tilted distribution gives no weight to a loss that no labelled document had; a bet does.

Only what was found before can be lost. So a document enters with the part x of it that is lost, at most 1, and with a
weight n: the number of its queries that can be lost, divided by the number of its queries if the statement is about the
average document. N is the number of all queries, or of documents. The wealth is Π (1 − s·x) / W over independent
documents. s in [0, 1) is the stake on a document, and W the largest expectation of the product under
the null hypothesis Σ n·μ ≥ δ·N for the expectations μ ≤ 1 of x. By independence, the expectation is Π (1 − s·μ). Its
logarithm is concave in μ and the constraint is linear, so the maximum has (Lagrange)

    1 − s·μ = max(s·κ / n, 1 − s)    with κ such that Σ n·μ = δ·N.

With one stake θ for all documents and no gains, μ ≥ 0, the worst case loses a part of the documents with n > θ·κ and
nothing of the others, which therefore only cost when they lose. A stake of θ·min(1, n / c) with c = θ·κ for this κ
leaves W unchanged and costs less on small documents. A larger c, a multiple of it, gives up some of W for even smaller
costs. With c ≥ θ·κ no document gains in the worst case though it may, so losses with gains need no other test.

The best θ and c depend on the distribution of losses, which is not known in advance, so the initial wealth is split
among several bets. Any c is valid, because W is computed for it.
"""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from taugate.calibration.metrics.clusters import ClusterIds, PerQuery

Statement = Literal["document", "query"]
Array = NDArray[np.float64]

# θ, the multiple of the smallest c, and the share of the initial wealth. The largest θ gains most if nothing is lost,
# and loses almost everything on one large document that is lost completely. This mixture was chosen out of eight, on
# simulated losses of documents of equal and unequal sizes (docs/research/evidence.md, "Stakes by size").
MIXTURE = np.array([[1 - 1e-6, 1.0, 0.5], [0.95, 1.0, 0.3], [0.9, 1.3, 0.2]])
# Against a share of one half or more, such as that of unanswerable queries answered, most documents lose, and smaller
# stakes grow fastest: for losses of 0 and 1 with mean p, θ = (δ − p) / (δ·(1 − p)) (Kelly, Bell Syst. Tech. J. 35,
# 1956), which is .37 for p = .85 and .55 for p = .8 if δ = .9. The shares of the wealth are the same, and half of it
# still bets that nothing is lost.
_AGAINST_MOST = np.array([[1 - 1e-6, 1.0, 0.5], [0.5, 1.0, 0.3], [0.25, 1.0, 0.2]])
_MAX_MARGIN = 1 - 1e-9  # the largest margin tested; an upper limit above it is given as 1
_SCANNED = 64  # margins at which an upper limit looks for the last one that is not excluded


@dataclass(frozen=True)
class DocumentBets:
    """The bets of the mixture against a mean loss of δ or more.

    Attributes:
        weights: (s,) distinct weights n of documents that can lose, ascending.
        counts: (s,) number of documents with each weight.
        total: N, the sum of what the mean divides by.
        largest: (b,) θ of each bet.
        full: (b,) c, the weight from which on a document has the whole stake θ, for each bet.
    """

    weights: Array
    counts: Array
    total: float
    largest: Array
    full: Array

    @classmethod
    def against(
        cls,
        delta: float,
        weights: Array | NDArray[np.int64],
        counts: Array | None = None,
        total: float | None = None,
    ) -> Self:
        """Choose c for a mean loss of δ.

        Args:
            delta: δ, −1…1.
            weights: (d,) weights n of documents in the mean.
            counts: (d,) number of documents of each, one if None.
            total: N, the sum of the weights if None.
        """
        n, inverse = np.unique(weights.astype(np.float64), return_inverse=True)
        count = np.bincount(inverse, counts).astype(np.float64)
        total = float(n @ count) if total is None else total
        n, count = n[n > 0], count[n > 0]
        mixture = MIXTURE if delta < 0.5 else _AGAINST_MOST
        required, smallest = max(delta, 0.0) * total, []
        for stake in mixture[:, 0].tolist():
            breaks = np.unique(np.concatenate([n, (1 - stake) * n]))  # θ·κ, where the worst case changes its slope
            lost = np.clip(n - breaks[:, None], 0.0, stake * n) @ count / stake
            smallest.append(float(np.interp(required, lost[::-1], breaks[::-1])))
        return cls(n, count, total, mixture[:, 0], mixture[:, 1] * np.array(smallest))

    def stakes(self, weights: Array) -> Array:
        """Return the stake θ·min(1, n / c) of each bet on documents of (…) weights, (b, …)."""
        shape = (-1, *(1 for _ in range(weights.ndim)))
        stakes: Array = self.largest.reshape(shape) * np.minimum(1.0, weights / self.full.reshape(shape))
        return stakes

    def log_wealth(self, terms: Array, weights: Array) -> Array:
        """Return ln(1 − s·x), (b, …); its sum over documents is the logarithm of the product.

        Args:
            terms: (…) parts x that are lost, at most 1.
            weights: (…) weights n of these documents.
        """
        wealth: Array = np.log1p(-self.stakes(weights) * terms)
        return wealth

    def log_worst(self, delta: float) -> Array:
        """Return ln W, (b,): the largest expectation of the product if the mean loss is δ or more.

        Args:
            delta: δ, −1…1; not necessarily that of `against`.
        """
        required, worst = delta * self.total, []
        for stakes in self.stakes(self.weights):
            slopes = stakes / self.weights
            breaks = np.unique((1 - stakes) / slopes)
            lost = ((1 - np.maximum(slopes * breaks[:, None], 1 - stakes)) / slopes) @ self.counts
            if required < lost[-1]:  # no document is lost whole
                kappa = breaks[-1] + (lost[-1] - required) / float(self.counts.sum())
            else:
                kappa = float(np.interp(required, lost[::-1], breaks[::-1]))
            worst.append(float(np.log(np.maximum(slopes * kappa, 1 - stakes)) @ self.counts))
        return np.array(worst)


def log_e(wealth: Array, worst: Array) -> Array:
    """Return the logarithm of the e-value, the mixture over bets.

    Args:
        wealth: (b, …) sums of `DocumentBets.log_wealth` over documents.
        worst: (b,) ln W.

    Returns:
        float64 in the shape of `wealth` less its first axis.
    """
    shares = (np.log(MIXTURE[:, 2]) - worst).reshape(-1, *(1 for _ in range(wealth.ndim - 1)))
    total: Array = special.logsumexp(wealth + shares, axis=0)
    return total


@dataclass(frozen=True)
class DocumentLosses:
    """Losses of queries, −1…1, as one bounded term for each document.

    Attributes:
        terms: (k,) part of a document that is lost, at most 1, float64: the mean loss of its queries, or of those that
            can lose.
        weights: (k,) weight n of such a document.
        counts: (k,) number of documents with this term and weight.
        total: N, which the mean divides by: the number of queries or of documents.
    """

    terms: PerQuery
    weights: PerQuery
    counts: PerQuery
    total: float

    @classmethod
    def from_clusters(cls, losses: PerQuery, cluster_ids: ClusterIds, statement: Statement = "document") -> Self:
        """Average paired losses by document; every query can lose everything.

        Args:
            losses: (q,) float64, −1…1.
            cluster_ids: (q,), equal for queries of one document.
            statement: Unit of the mean, the average document or the average query, given the number of queries per
                document.
        """
        sizes = np.bincount(cluster_ids)
        sums = np.bincount(cluster_ids, losses)[sizes > 0]
        sizes = sizes[sizes > 0]
        weights = np.ones(len(sizes)) if statement == "document" else sizes.astype(np.float64)
        return cls.from_parts(sums / sizes, weights, float(weights.sum()))

    @classmethod
    def from_parts(cls, terms: PerQuery, weights: PerQuery, total: float) -> Self:
        """Count the distinct pairs of (d,) terms and (d,) weights of documents."""
        pairs, counts = np.unique(np.column_stack([terms, weights]), axis=0, return_counts=True)
        return cls(pairs[:, 0], pairs[:, 1], counts.astype(np.float64), total)

    @property
    def mean(self) -> float:
        """Mean loss per document or per query, as the statement says."""
        return float(self.terms * self.weights @ self.counts) / self.total

    def p_value(self, margin: float, requested: float = 1.0) -> float:
        """Return the p-value of "the mean loss is `margin` or more": 1 / e-value, at most 1.

        Args:
            margin: −1…1.
            requested: Largest margin that sets the stakes.
        """
        bets = DocumentBets.against(min(margin, requested), self.weights, self.counts, self.total)
        wealth = bets.log_wealth(self.terms, self.weights) @ self.counts
        return float(np.exp(-max(0.0, float(log_e(wealth, bets.log_worst(margin))))))

    def upper_limit(self, confidence: float, requested: float = 1.0) -> float:
        """Return the one-sided upper limit, −1…1: the largest margin whose p-value is above 1 − confidence.

        The stakes depend on the margin, so the p-value need not fall everywhere as the margin rises. All margins above
        the limit are excluded.

        Args:
            confidence: Confidence of the limit, in 0…1.
            requested: Largest margin that sets the stakes. If it is excluded, the limit is below it, because larger
                margins are excluded by the same stakes.
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
        return float(optimize.brentq(lambda margin: self.p_value(margin, requested) - alpha, low, excluded, xtol=1e-9))

    def lower_limit(self, confidence: float) -> float:
        """Return the one-sided lower limit, −1…1: minus the upper limit of the mean gain."""
        return -DocumentLosses(-self.terms, self.weights, self.counts, self.total).upper_limit(confidence)

    def times(self, factor: float) -> "DocumentLosses":
        """Return the evidence of `factor` times as many documents with losses like these."""
        return DocumentLosses(self.terms, self.weights, self.counts * factor, self.total * factor)
