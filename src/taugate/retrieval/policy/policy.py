"""The rule that keeps or drops a result, the same everywhere: decision score ≥ τ, compared in float32.

The decision score of a policy is the similarity itself, its share of the query's best similarity, its gap to the best
one, or the estimated probability that the document is relevant.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import Filter, OneOf, SortKey
from taugate.retrieval.vectors.similarity import Float32

PolicyKind = Literal["similarity", "relative", "gap", "probability", "none"]
# Policies that never drop the best result, so that without a rule that refuses queries every query gets one.
KEEP_BEST: frozenset[PolicyKind] = frozenset({"relative", "gap", "none"})
Metric = Literal["accuracy", "ndcg"]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class StratumThresholds:
    """Certified thresholds of searches with a filter on one value of a metadata field.

    Attributes:
        field: Name of the field.
        taus: Thresholds by value, for values with a certified threshold.
    """

    field: str
    taus: Mapping[SortKey, float]

    def tau(self, query_filter: Filter) -> float | None:
        """Return the threshold of a filter that selects exactly one of the values; None for any other filter."""
        match query_filter:
            case (OneOf(field=name, keys=(value,)),) if name == self.field:
                return self.taus.get(value)
        return None


@dataclass(frozen=True)
class Policy:
    """A decision score and the threshold τ that it is compared with.

    Attributes:
        kind: `similarity` keeps results that score at least τ, `relative` those that reach the share τ of the query's
            best score, `gap` those at most −τ below the best score, `probability` those whose relevance is at least τ,
            and `none` all (no threshold was certified).
        tau: Threshold in units of the decision score, at most 0 for `gap`; None for `none`.
        k: The K that τ was calibrated at.
        metric: Metric of the loss at τ.
        provisional: Whether τ is not calibrated: it rests on too few queries, or on other documents, or was given.
        strata: Thresholds of filtered searches; None without any.
        certified: Whether the calibration holds for the searched documents.
    """

    kind: PolicyKind
    tau: float | None
    k: int
    metric: Metric = "accuracy"
    provisional: bool = False
    strata: StratumThresholds | None = None
    certified: bool = True

    def within(self, query_filter: Filter) -> "Policy":
        """Return the policy of a filtered search: that of its stratum, else this one without its certificate.

        Args:
            query_filter: Filter; an empty one searches all documents.
        """
        if not query_filter:
            return self
        tau = None if self.strata is None else self.strata.tau(query_filter)
        return replace(self, certified=False) if tau is None else replace(self, tau=tau)

    @property
    def threshold(self) -> np.float32 | None:
        """τ rounded once to float32 for comparison, so every machine keeps scores equal to it."""
        return None if self.tau is None else np.float32(self.tau)

    def covers(self, k: int) -> bool:
        """Return whether the calibration for the first K results holds for the first k; never for a provisional τ.

        A cut by score keeps a prefix of the list, so it cannot lose more hits among fewer results, but it may among
        more. A cut by probability may keep the second relevant document and drop the first. NDCG is relative to an
        ideal that shrinks with k, so a document counts more. Both of these are certified for K only.
        """
        if self.kind == "none" or self.provisional or not self.certified:
            return False
        return k == self.k if self.kind == "probability" or self.metric == "ndcg" else k <= self.k


def decision_scores(kind: PolicyKind, scores: Float32, relevance: Float32 | None) -> Float32:
    """Return the decision scores that a policy compares with τ, (n, K) float32.

    Args:
        kind: Kind of the policy.
        scores: (n, K) float32 similarities, best first.
        relevance: (n, K) float32 probabilities, required for `probability`.

    Raises:
        ValueError: If `relevance` is missing.
    """
    if kind == "probability":
        if relevance is None:
            raise ValueError("the policy probability needs relevance")  # a release without a model cannot have it
        return relevance
    if kind == "gap":
        return gap(scores)
    return relative(scores) if kind == "relative" else scores


def relative(scores: Float32) -> Float32:
    """Return scores, (n, K) float32, best first, as shares of the query's best score, rounded once to float32.

    Shares are 0 for all results of a query whose best score is at most 0: no document resembles the query, and any τ
    above 0 drops them all.
    """
    best = scores[:, :1].astype(np.float64)
    share = np.divide(scores, best, out=np.zeros(scores.shape), where=best > 0)
    with np.errstate(over="ignore"):  # −∞, so dropped, if the best score is tiny and another far below it
        return share.astype(np.float32)


def gap(scores: Float32) -> Float32:
    """Return scores, (n, K) float32, best first, less the query's best score, rounded once to float32.

    A constant that is added to all scores of a query does not change them, so they suit log-odds and distances, whose
    shares of the best score mean nothing.
    """
    difference: Float32 = (scores.astype(np.float64) - scores[:, :1].astype(np.float64)).astype(np.float32)
    return difference


def keep(decisions: Float32, threshold: np.float32 | Float32 | None) -> Mask:
    """Return which results pass the cut, bool of the shape of `decisions`.

    Args:
        decisions: float32 decision scores of any shape.
        threshold: Threshold, or thresholds that broadcast to the decisions; None keeps all, while 0.0 is a threshold.
    """
    if threshold is None:
        return np.ones(decisions.shape, dtype=np.bool_)
    return decisions >= threshold


def keep_answered(decisions: Float32, threshold: np.float32 | None, answered: Mask | None) -> Mask:
    """Return which results are kept, (n, K) bool: none of a refused query, else the best one and those that pass.

    Whether a query is answered is decided and certified for the query as a whole. The cut then only selects the results
    besides the best one.

    Args:
        decisions: (n, K) float32 decision scores, in the order of similarity.
        threshold: See `keep`.
        answered: (n,) bool, which queries are answered; None if no query can be refused, so that only the cut decides.
    """
    kept = keep(decisions, threshold)
    if answered is None:
        return kept
    kept[:, :1] = True
    result: Mask = kept & answered[:, None]
    return result
