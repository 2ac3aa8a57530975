"""Evidence by document: a test of a mean loss that allows for losses that were not observed.

Queries about one document may be lost together, for example when it leaves the corpus. So the unit is the document, and
nothing is assumed about the loss of its queries except its bounds. A bet on "the mean loss is below δ" starts with a
wealth of 1. A document with n queries, of which L are lost, multiplies it by

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

The best λ depends on the distribution of losses, which is not known in advance, so the initial wealth is split among
several bets.
"""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from taugate.calibration.metrics.clusters import ClusterIds, PerQuery

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
_MAX_MARGIN = 1 - 1e-9  # the largest margin tested; an upper limit above it is given as 1
_SCANNED = 64  # margins at which an upper limit looks for the last one that is not excluded


@dataclass(frozen=True)
class DocumentBets:
    """The bets of the mixture against a mean loss of δ or more.

    Attributes:
        delta: δ, −1…1.
        rates: (b,) λ of each bet.
        shares: (b,) share of the initial wealth of each bet.
    """

    delta: float
    rates: Array
    shares: Array

    @classmethod
    def against(cls, delta: float, losable: Array, sizes: Array, requested: float = 1.0) -> Self:
        """Choose λ for a mean loss of δ.

        Args:
            delta: δ, −1…1.
            losable: (d,) largest loss of each document.
            sizes: (d,) number n of queries of each document.
            requested: Largest margin that sets λ.
        """
        mixture = _MIXTURE if delta < 0.5 else _AGAINST_MOST
        largest = float((losable - min(delta, requested) * sizes).max())
        return cls(delta, mixture[:, 0] / max(largest, 1e-9), mixture[:, 1])  # nothing is at stake if not above 0

    def log_wealth(self, losses: Array, sizes: Array) -> Array:
        """Return ln(1 + λ·(δ·n − L)), (b, …); its sum over documents is the logarithm of the wealth.

        Args:
            losses: (…) losses L.
            sizes: (…) numbers n of queries of these documents.
        """
        rates = self.rates.reshape(-1, *(1 for _ in range(sizes.ndim)))
        wealth: Array = np.log1p(rates * (self.delta * sizes - losses))
        return wealth

    def log_e(self, wealth: Array) -> Array:
        """Return the logarithm of the e-value, the mixture over bets.

        Args:
            wealth: (b, …) sums of `log_wealth` over documents.

        Returns:
            float64 in the shape of `wealth` less its first axis.
        """
        shares = np.log(self.shares).reshape(-1, *(1 for _ in range(wealth.ndim - 1)))
        total: Array = special.logsumexp(wealth + shares, axis=0)
        return total


@dataclass(frozen=True)
class DocumentLosses:
    """Losses of queries, −1…1, as one bounded term for each document.

    Attributes:
        losses: (k,) float64, loss L of the queries of a document, or its mean.
        sizes: (k,) float64, number n of these queries, or 1.
        counts: (k,) float64, number of documents with this loss and size.
        losable: (k,) float64, largest loss of such a document.
    """

    losses: PerQuery
    sizes: PerQuery
    counts: PerQuery
    losable: PerQuery

    @classmethod
    def from_clusters(cls, losses: PerQuery, cluster_ids: ClusterIds, statement: Statement = "document") -> Self:
        """Add up paired losses by document; every query can lose everything.

        Args:
            losses: (q,) float64, −1…1.
            cluster_ids: (q,), equal for queries of one document.
            statement: Unit of the mean, the average document or the average query.
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

        Args:
            margin: −1…1.
            requested: Largest margin that sets λ.
        """
        bets = DocumentBets.against(margin, self.losable, self.sizes, requested)
        wealth = bets.log_wealth(self.losses, self.sizes) @ self.counts
        return float(np.exp(-max(0.0, float(bets.log_e(wealth)))))

    def upper_limit(self, confidence: float, requested: float = 1.0) -> float:
        """Return the one-sided upper limit, −1…1: the largest margin whose p-value is above 1 − confidence.

        λ depends on the margin, so the p-value need not fall everywhere as the margin rises. All margins above the
        limit are excluded.

        Args:
            confidence: Confidence of the limit, in 0…1.
            requested: Largest margin that sets λ. If it is excluded, the limit is below it, because larger margins are
                excluded by the same λ.
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
        return -DocumentLosses(-self.losses, self.sizes, self.counts, self.sizes).upper_limit(confidence)

    def times(self, factor: float) -> "DocumentLosses":
        """Return the evidence of `factor` times as many documents with losses like these."""
        return DocumentLosses(self.losses, self.sizes, self.counts * factor, self.losable)
