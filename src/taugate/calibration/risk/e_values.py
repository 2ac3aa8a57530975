"""Evidence by document: a test of a mean loss that allows for losses that were not observed.

Queries about one document may be lost together, for example when it leaves the corpus. So the unit is the document,
with its share of lost queries, and nothing is assumed about that share except its bounds. A bet on "the mean loss is
below δ" starts with a wealth of 1, which each document multiplies by a factor. If the mean loss is δ or more, the
expected wealth is at most 1, so the wealth reaches 1 / α with a probability of at most α (Markov). The wealth is an
e-value (Vovk and Wang, "E-values: Calibration, combination and applications", Ann. Statist. 49, 2021; for bounded
means: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024). A bootstrap
or a tilted distribution gives no weight to a loss that no labelled document had; a bet does.

The factor is 1 − θ·x with x the bounded term of a document and θ in (0, 1) the stake. The wealth is divided by the
largest expectation of Π (1 − θ·x) under the null hypothesis. The best stake depends on the distribution of losses,
which is not known in advance, so the initial wealth is split among several stakes.
"""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from taugate.calibration.metrics.clusters import ClusterIds, PerQuery

Statement = Literal["document", "query"]

# The largest stake gains most if nothing is lost, and loses almost everything on one document that is lost completely.
# This mixture was chosen out of five, on simulated losses of whole documents and of single queries, with 360 to 2,000
# documents of equal size: its power was never more than .10 below the best one's (docs/research/evidence.md, "Stakes").
STAKES = np.array([1 - 1e-6, 0.9, 0.8, 0.6, 0.4, 0.2])
_WEIGHTS = np.array([0.4, 0.12, 0.12, 0.12, 0.12, 0.12])
_MAX_MARGIN = 1 - 1e-9  # the largest margin tested; an upper limit above it is given as 1


def log_wealth(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln(1 − θ·x) for each stake θ, (stakes, …) float64; its sum over documents is the logarithm of the wealth.

    Args:
        terms: x, any shape, at most 1.
    """
    stakes = STAKES.reshape(-1, *(1 for _ in range(terms.ndim)))
    wealth: NDArray[np.float64] = np.log1p(-stakes * terms)
    return wealth


def log_e(wealth: NDArray[np.float64], worst: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of the e-value, the mixture over stakes.

    Args:
        wealth: (stakes, …) sums of `log_wealth` over documents.
        worst: (stakes,) logarithm of the largest expectation that the null hypothesis allows.

    Returns:
        float64 in the shape of `wealth` less its first axis.
    """
    shares = (np.log(_WEIGHTS) - worst).reshape(-1, *(1 for _ in range(wealth.ndim - 1)))
    total: NDArray[np.float64] = special.logsumexp(wealth + shares, axis=0)
    return total


def worst_of_documents(margin: float, documents: float) -> NDArray[np.float64]:
    """Return the logarithm of the largest expectation of Π (1 − θ·x) if the mean of x is `margin` or more.

    That expectation is (1 − θ·margin) ^ documents.

    Args:
        margin: Mean of x, −1…1.
        documents: Number of documents.

    Returns:
        float64, (stakes,).
    """
    worst: NDArray[np.float64] = documents * np.log1p(-STAKES * margin)
    return worst


def worst_of_queries(delta: float, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the logarithm of the largest expectation of Π (1 − θ·x) if a share δ of the *queries* or more is lost.

    x is the share of a document's queries that are lost, in 0…1. The bound assumes that future queries are spread over
    documents as the labelled ones are, n queries on each. The expectation is then Π (1 − θ·μ) over the documents' mean
    losses μ, and the null hypothesis is Σ n·μ ≥ δ·Σ n. The product is log-concave, so its maximum has 1 − θ·μ = κ / n,
    clipped to 1 − θ … 1 (Lagrange): larger documents lose a larger share, and small ones lose nothing. With equal sizes
    this is `worst_of_documents`.

    Args:
        delta: δ, in 0…1.
        sizes: n, (c,) int64.

    Returns:
        float64, (stakes,).
    """
    n, counts = np.unique(sizes.astype(np.float64), return_counts=True)
    required_loss = delta * float(n @ counts)
    worst = np.empty(len(STAKES))
    for row, stake in enumerate(STAKES):

        def excess_loss(kappa: float, stake: float = float(stake)) -> float:
            return float((n * counts) @ (1 - np.clip(kappa / n, 1 - stake, 1.0))) / stake - required_loss

        kappa = optimize.brentq(excess_loss, 0.0, float(n[-1]), xtol=1e-12)
        worst[row] = counts @ np.log(np.clip(kappa / n, 1 - stake, 1.0))
    return worst


@dataclass(frozen=True)
class DocumentLosses:
    """Paired losses of queries, −1…1, as one bounded term for each document.

    If the statement is "document", the mean is over documents, and a term is the mean loss of a document's queries. If
    it is "query", the mean is over queries, given the number of queries per document, and a term is the sum of a
    document's losses divided by the largest number of queries about one document, which costs power.

    Attributes:
        terms: (c,) distinct terms, float64.
        counts: (c,) number of documents with each term.
        scale: Mean of the terms if the mean loss is 1.
    """

    terms: PerQuery
    counts: PerQuery
    scale: float

    @classmethod
    def from_clusters(cls, losses: PerQuery, cluster_ids: ClusterIds, statement: Statement = "document") -> Self:
        """Sum the losses of queries by document.

        Args:
            losses: (q,) float64, −1…1.
            cluster_ids: (q,), equal for queries of one document.
            statement: Unit of the mean, the average document or the average query.
        """
        sizes = np.bincount(cluster_ids)
        sums = np.bincount(cluster_ids, losses)[sizes > 0]
        sizes = sizes[sizes > 0]
        terms = sums / sizes if statement == "document" else sums / sizes.max()
        scale = 1.0 if statement == "document" else float(sizes.mean() / sizes.max())
        distinct, counts = np.unique(terms, return_counts=True)
        return cls(distinct, counts.astype(np.float64), scale)

    @property
    def mean(self) -> float:
        """Mean loss per document or per query, as the statement says."""
        return float(self.terms @ self.counts) / float(self.counts.sum()) / self.scale

    def p_value(self, margin: float) -> float:
        """Return the p-value of "the mean loss is `margin` (between −1 and 1) or more": 1 / e-value, at most 1."""
        worst = worst_of_documents(margin * self.scale, float(self.counts.sum()))
        return float(np.exp(-max(0.0, float(log_e(log_wealth(self.terms) @ self.counts, worst)))))

    def upper_limit(self, confidence: float) -> float:
        """Return the one-sided upper limit, −1…1: the margin whose p-value is 1 − confidence."""
        alpha = 1 - confidence
        if self.mean >= _MAX_MARGIN or self.p_value(_MAX_MARGIN) > alpha:
            return 1.0
        low = max(self.mean, -_MAX_MARGIN)
        return float(optimize.brentq(lambda margin: self.p_value(margin) - alpha, low, _MAX_MARGIN, xtol=1e-9))

    def lower_limit(self, confidence: float) -> float:
        """Return the one-sided lower limit, −1…1: minus the upper limit of the mean gain."""
        return -DocumentLosses(-self.terms, self.counts, self.scale).upper_limit(confidence)

    def times(self, factor: float) -> "DocumentLosses":
        """Return the evidence of `factor` times as many documents with losses like these."""
        return DocumentLosses(self.terms, self.counts * factor, self.scale)
