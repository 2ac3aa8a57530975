"""Three ways to know that a loss is at most δ, as a function of the total loss of n queries.

Each is monotone in the loss, and the loss is monotone in τ: going up from the lowest candidate and stopping at the
first that fails is fixed-sequence testing, which needs no correction for how many were tried (Bauer, "Multiple testing
in clinical trials", 1991; Angelopoulos et al., "Learn then Test", 2022, fixed-sequence testing). So the largest τ that
passes is where the staircase crosses one number. That the candidates come from the same queries costs nothing: every
real τ is tested, and between two candidates the staircase is level (Bates et al., JACM 2021, Theorem 1).
"""

import math
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

Losses = NDArray[np.float64]


def expected(losses: Losses, n: int, delta: float, largest: int = 1) -> NDArray[np.bool_]:
    """Conformal risk control: (Σ loss + 1) / (n + 1) ≤ δ.

    Then the loss of the next query, averaged over draws of the n and of it, is at most δ when all n + 1 are
    exchangeable (Angelopoulos et al., "Conformal Risk Control", ICLR 2024, eq. 4 with B = 1, and Theorem 1). largest:
    queries on one document, at most, where whole documents are exchangeable and queries are not: the loss of a document
    is then Σ (loss − δ) over its queries, at most largest · (1 − δ), which is B of the same theorem. B is of every
    document: where a later one has more queries than the largest here, its loss may be more.
    """
    passed: NDArray[np.bool_] = losses + largest * (1 - delta) <= delta * n + 1e-9  # 1e-9: δ·n is no whole number
    return passed


def exact_p_values(losses: Losses, n: int, delta: float) -> NDArray[np.float64]:
    """P(Binomial(n, δ) ≤ Σ loss): the exact p-value of "the loss is above δ" where a query's loss is 0 or 1."""
    p: NDArray[np.float64] = special.betainc(np.maximum(n - losses, 1e-12), losses + 1, 1 - delta)
    return np.where(losses >= n, 1.0, p)


def bounded_p_values(losses: Losses, n: int, delta: float) -> NDArray[np.float64]:
    """Hoeffding–Bentkus p-value for losses anywhere in 0…1.

    min(exp(−n·h(min(r̂, δ), δ)), e·P(Binomial(n, δ) ≤ ⌈n·r̂⌉)), h(a, b) = a·ln(a/b) + (1 − a)·ln((1 − a)/(1 − b))
    (Bates et al., "Distribution-Free, Risk-Controlling Prediction Sets", JACM 2021, Theorem 4 and §3.1.2).
    """
    mean = np.minimum(losses / n, delta)
    hoeffding = np.exp(-n * (special.rel_entr(mean, delta) + special.rel_entr(1 - mean, 1 - delta)))
    bentkus = math.e * stats.binom.cdf(np.ceil(losses - 1e-9), n, delta)
    p: NDArray[np.float64] = np.where(losses / n >= delta, 1.0, np.minimum(hoeffding, bentkus))
    return p


def upper_limit(loss: float, n: int, confidence: float, *, binary: bool) -> float:
    """The largest δ that the data do not rule out: one-sided upper confidence limit of the mean loss."""
    if binary:
        return 1.0 if loss >= n else float(stats.beta.ppf(confidence, loss + 1, n - loss))
    mean = loss / n
    if mean >= 1:
        return 1.0
    return float(
        optimize.brentq(
            lambda delta: float(bounded_p_values(np.array([loss]), n, delta)[0]) - (1 - confidence),
            mean + 1e-12,
            1 - 1e-12,
            xtol=1e-12,
        )
    )


def queries_for_expected(delta: float) -> int:
    """The fewest queries with which conformal risk control can pass, with no loss at all: 1 / (n + 1) ≤ δ."""
    return max(1, math.ceil(1 / delta - 1 - 1e-9))


def queries_for_confidence(delta: float, confidence: float) -> int:
    """The fewest queries with which a loss of δ can be certified, with no loss at all: (1 − δ)ⁿ ≤ 1 − confidence."""
    return max(1, math.ceil(math.log(1 - confidence) / math.log1p(-delta) - 1e-9))


PerQuery = NDArray[np.float64]
Labels = NDArray[np.int64]
Statement = Literal["document", "query"]

# The largest stake wins most where nothing is lost, and all but loses everything on one document that is lost whole.
# Chosen on simulated losses, whole documents and single queries, of 360 to 2,000 equal documents: of five mixtures the
# one whose power was nowhere more than .10 below the best (docs/benchmarks/evidence.md, "Stakes").
STAKES = np.array([1 - 1e-6, 0.9, 0.8, 0.6, 0.4, 0.2])
_WEIGHTS = np.array([0.4, 0.12, 0.12, 0.12, 0.12, 0.12])
_WIDEST = 1 - 1e-9  # a mean loss of 1 is not excluded by anything


def log_wealth(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ ln(1 − θ·x) is the sum of these over documents; terms: any shape, x ≤ 1. Returns (stakes, …)."""
    stakes = STAKES.reshape(-1, *(1 for _ in range(terms.ndim)))
    wealth: NDArray[np.float64] = np.log1p(-stakes * terms)
    return wealth


def log_e(wealth: NDArray[np.float64], worst: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the e-value; wealth: (stakes, …) sums of `log_wealth`, worst: (stakes,) what the null allows."""
    shares = (np.log(_WEIGHTS) - worst).reshape(-1, *(1 for _ in range(wealth.ndim - 1)))
    total: NDArray[np.float64] = special.logsumexp(wealth + shares, axis=0)
    return total


def worst_of_documents(margin: float, documents: float) -> NDArray[np.float64]:
    """Ln of the largest E Π (1 − θ·x) where x has a mean of `margin` or more: (1 − θ·margin) ^ documents."""
    worst: NDArray[np.float64] = documents * np.log1p(-STAKES * margin)
    return worst


def worst_of_queries(delta: float, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Ln of the largest E Π (1 − θ·x) where a share δ of the *queries* or more is lost; x in 0…1 for each document.

    The sizes n (queries of each document, (C,)) are taken as given: what is said is said of queries that fall on
    documents of as many queries as these have. The expectation is then Π (1 − θ·μ) over the documents' mean losses μ,
    and the null hypothesis is Σ n·μ ≥ δ·Σ n. The product is log-concave, so that its maximum is where 1 − θ·μ is κ / n,
    between 1 − θ and 1 (Lagrange): the larger a document, the more of it is lost, and small ones lose nothing. With
    equal sizes this is `worst_of_documents`.
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
    """Paired losses of queries, −1 … 1, as one bounded term for each document.

    statement "document": the mean loss of the average document, the term is the mean over its queries; "query": that
    of the average query, given how many queries each document has; the term is the sum over its queries divided by the
    largest number that a document has, which costs power. terms: distinct ones, (c,), counts: how many documents have
    each; scale: a mean loss of 1, in terms.
    """

    terms: PerQuery
    counts: PerQuery
    scale: float

    @classmethod
    def of(cls, losses: PerQuery, labels: Labels, statement: Statement = "document") -> Self:
        """losses, labels: (q,); queries with the same label are of one document."""
        sizes = np.bincount(labels)
        sums = np.bincount(labels, losses)[sizes > 0]
        sizes = sizes[sizes > 0]
        terms = sums / sizes if statement == "document" else sums / sizes.max()
        scale = 1.0 if statement == "document" else float(sizes.mean() / sizes.max())
        distinct, counts = np.unique(terms, return_counts=True)
        return cls(distinct, counts.astype(np.float64), scale)

    @property
    def mean(self) -> float:
        """Mean loss of the documents, or of the queries."""
        return float(self.terms @ self.counts) / float(self.counts.sum()) / self.scale

    def p_value(self, margin: float) -> float:
        """At most 1: the inverse of the e-value against "the mean loss is `margin` or more", −1 < margin < 1."""
        worst = worst_of_documents(margin * self.scale, float(self.counts.sum()))
        return float(np.exp(-max(0.0, float(log_e(log_wealth(self.terms) @ self.counts, worst)))))

    def upper_limit(self, confidence: float) -> float:
        """One-sided: the margin of which the p-value is 1 − confidence, −1 … 1."""
        alpha = 1 - confidence
        if self.mean >= _WIDEST or self.p_value(_WIDEST) > alpha:
            return 1.0
        low = max(self.mean, -_WIDEST)
        return float(optimize.brentq(lambda margin: self.p_value(margin) - alpha, low, _WIDEST, xtol=1e-9))

    def lower_limit(self, confidence: float) -> float:
        """One-sided, −1 … 1: minus the upper limit of the mean gain."""
        return -DocumentLosses(-self.terms, self.counts, self.scale).upper_limit(confidence)

    def times(self, factor: float) -> "DocumentLosses":
        """As if so many times as many documents had been labelled, with losses like these."""
        return DocumentLosses(self.terms, self.counts * factor, self.scale)
