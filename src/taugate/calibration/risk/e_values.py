"""Evidence by document: a test of a mean loss that reckons with documents that were not observed.

Queries on one document may be lost together, as when it leaves the corpus. So the unit is the document, with its share
of lost queries, and nothing is assumed of that share but its bounds. Betting on "the mean loss is below δ" multiplies a
unit of wealth by a factor for each document; where the mean loss is δ or more the expected wealth is at most 1, so that
it reaches 1 / α with a probability of at most α (Markov). The wealth is an e-value (Vovk and Wang, "E-values:
Calibration, combination and applications", Ann. Statist. 49, 2021; for bounded means: Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting", JRSS B 86, 2024). A bootstrap or a tilted distribution gives
no weight to a loss that no labelled document had; a bet pays for it.

The factor is 1 − θ·x, x the bounded term of a document and θ in (0, 1) the stake; the wealth is divided by the largest
expectation that Π (1 − θ·x) has under the null hypothesis. Which stake is best depends on how losses fall, which is not
known before: the wealth is divided among several.
"""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from taugate.calibration.metrics.clusters import Labels, PerQuery

Statement = Literal["document", "query"]

# The largest stake wins most where nothing is lost, and all but loses everything on one document that is lost whole.
# Chosen on simulated losses, whole documents and single queries, of 360 to 2,000 equal documents: of five mixtures the
# one whose power was nowhere more than .10 below the best (docs/benchmarks/evidence.md, "Stakes").
STAKES = np.array([1 - 1e-6, 0.9, 0.8, 0.6, 0.4, 0.2])
_WEIGHTS = np.array([0.4, 0.12, 0.12, 0.12, 0.12, 0.12])
_WIDEST = 1 - 1e-9  # a mean loss of 1 is not excluded by anything


def log_wealth(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln(1 − θ·x) for each stake θ, of which the sum over documents is the logarithm of the wealth.

    Args:
        terms: x, any shape, each at most 1.

    Returns:
        float64, (stakes, …).
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
    """Return ln of the largest E Π (1 − θ·x) where x has a mean of `margin` or more: (1 − θ·margin) ^ documents.

    Args:
        margin: Of the null hypothesis, −1…1.
        documents: How many there are.

    Returns:
        float64, (stakes,).
    """
    worst: NDArray[np.float64] = documents * np.log1p(-STAKES * margin)
    return worst


def worst_of_queries(delta: float, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return ln of the largest E Π (1 − θ·x) where a share δ of the *queries* or more is lost.

    x is the share of a document's queries that are lost, in 0…1. The sizes n, queries of each document, are taken as
    given: the statement is about queries that fall on documents of as many queries as these have. The expectation is
    then Π (1 − θ·μ) over the documents' mean losses μ, and the null hypothesis is Σ n·μ ≥ δ·Σ n. The product is
    log-concave, so that its maximum is where 1 − θ·μ is κ / n, between 1 − θ and 1 (Lagrange): the larger a document,
    the more of it is lost, and small ones lose nothing. With equal sizes this is `worst_of_documents`.

    Args:
        delta: δ, in 0…1.
        sizes: n, (c,) int64.

    Returns:
        float64, (stakes,).
    """
    n, counts = np.unique(sizes.astype(np.float64), return_counts=True)
    lost = delta * float(n @ counts)
    worst = np.empty(len(STAKES))
    for each, stake in enumerate(STAKES):

        def missing(kappa: float, stake: float = float(stake)) -> float:
            return float((n * counts) @ (1 - np.clip(kappa / n, 1 - stake, 1.0))) / stake - lost

        kappa = optimize.brentq(missing, 0.0, float(n[-1]), xtol=1e-12)
        worst[each] = counts @ np.log(np.clip(kappa / n, 1 - stake, 1.0))
    return worst


@dataclass(frozen=True)
class DocumentLosses:
    """Paired losses of queries, −1…1, as one bounded term for each document.

    With the statement "document" the mean is that of the average document, and a term is the mean over its queries.
    With "query" it is that of the average query, given how many queries each document has; a term is the sum over its
    queries divided by the largest number that a document has, which costs power.

    Attributes:
        terms: (c,) distinct terms, float64.
        counts: (c,) how many documents have each.
        scale: A mean loss of 1, in terms.
    """

    terms: PerQuery
    counts: PerQuery
    scale: float

    @classmethod
    def from_labels(cls, losses: PerQuery, labels: Labels, statement: Statement = "document") -> Self:
        """Sum the losses of queries by document.

        Args:
            losses: (q,) float64, −1…1.
            labels: (q,), equal for queries of one document.
            statement: Whose mean is meant, that of the average document or query.
        """
        sizes = np.bincount(labels)
        sums = np.bincount(labels, losses)[sizes > 0]
        sizes = sizes[sizes > 0]
        terms = sums / sizes if statement == "document" else sums / sizes.max()
        scale = 1.0 if statement == "document" else float(sizes.mean() / sizes.max())
        distinct, counts = np.unique(terms, return_counts=True)
        return cls(distinct, counts.astype(np.float64), scale)

    @property
    def mean(self) -> float:
        """Mean loss of the documents, or of the queries, as the statement has it."""
        return float(self.terms @ self.counts) / float(self.counts.sum()) / self.scale

    def p_value(self, margin: float) -> float:
        """Return the p-value of "the mean loss is `margin` or more", at most 1: the inverse of the e-value.

        Args:
            margin: Above −1 and below 1.
        """
        worst = worst_of_documents(margin * self.scale, float(self.counts.sum()))
        return float(np.exp(-max(0.0, float(log_e(log_wealth(self.terms) @ self.counts, worst)))))

    def upper_limit(self, confidence: float) -> float:
        """Return the one-sided upper limit, −1…1: the margin of which the p-value is 1 − confidence."""
        alpha = 1 - confidence
        if self.mean >= _WIDEST or self.p_value(_WIDEST) > alpha:
            return 1.0
        low = max(self.mean, -_WIDEST)
        return float(optimize.brentq(lambda margin: self.p_value(margin) - alpha, low, _WIDEST, xtol=1e-9))

    def lower_limit(self, confidence: float) -> float:
        """Return the one-sided lower limit, −1…1: minus the upper limit of the mean gain.

        Args:
            confidence: Of the limit.
        """
        return -DocumentLosses(-self.terms, self.counts, self.scale).upper_limit(confidence)

    def times(self, factor: float) -> "DocumentLosses":
        """Return what `factor` times as many documents, with losses like these, would show."""
        return DocumentLosses(self.terms, self.counts * factor, self.scale)
