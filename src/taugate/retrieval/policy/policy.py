"""The rule that keeps or drops a result: decision score ≥ τ, compared in float32, for every query everywhere.

What is compared is the policy's decision score: the similarity itself, its share of the query's best similarity, or the
estimated probability that the document is relevant.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import Filter, OneOf, SortKey
from taugate.retrieval.vectors.similarity import Float32

PolicyKind = Literal["similarity", "relative", "probability", "none"]
Metric = Literal["accuracy", "ndcg"]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class StratumThresholds:
    """Certified thresholds of searches that are filtered on one value of a metadata field.

    Attributes:
        field: Its name.
        taus: By value; values without a certified threshold are not in it.
    """

    field: str
    taus: Mapping[SortKey, float]

    def tau(self, wanted: Filter) -> float | None:
        """Return the threshold of a filter on one of the values and nothing else; None for any other filter."""
        match wanted:
            case (OneOf(field=name, keys=(value,)),) if name == self.field:
                return self.taus.get(value)
        return None


@dataclass(frozen=True)
class Policy:
    """A decision score and the threshold τ that it is compared with.

    Attributes:
        kind: `similarity` keeps what scores at least τ, `relative` what reaches the share τ of the query's best score,
            `probability` what is relevant with a probability of at least τ, `none` everything (no threshold was
            certified).
        tau: In units of the decision score, None for `none`.
        k: The K that τ was calibrated at.
        metric: What its loss was measured in.
        provisional: Whether too few queries stand behind τ to say how good it is.
        strata: Thresholds of filtered searches, None without any.
        certified: Whether the calibration holds for the documents that are searched.
    """

    kind: PolicyKind
    tau: float | None
    k: int
    metric: Metric = "accuracy"
    provisional: bool = False
    strata: StratumThresholds | None = None
    certified: bool = True

    def within(self, wanted: Filter) -> "Policy":
        """Return the policy of a filtered search: that of its stratum, else this one, which is not certified for it.

        Args:
            wanted: The filter; an empty one searches all documents.
        """
        if not wanted:
            return self
        tau = None if self.strata is None else self.strata.tau(wanted)
        return replace(self, certified=False) if tau is None else replace(self, tau=tau)

    @property
    def threshold(self) -> np.float32 | None:
        """τ rounded once to float32, as it is compared: a score equal to it is kept on every machine."""
        return None if self.tau is None else np.float32(self.tau)

    def covers(self, k: int) -> bool:
        """Tell whether the calibration for the first K results holds for the first k.

        For a provisional τ it holds for none.

        A cut by score keeps a prefix of the list, so that it loses no more hits among fewer results, but it may among
        more. A cut by probability may keep the second relevant document and drop the first, and NDCG is relative to an
        ideal that shrinks with k, so that the same document is a larger part of it: these two were tested on K only.
        """
        if self.kind == "none" or self.provisional or not self.certified:
            return False
        return k == self.k if self.kind == "probability" or self.metric == "ndcg" else k <= self.k


def decision_scores(kind: PolicyKind, scores: Float32, relevance: Float32 | None) -> Float32:
    """Return what a policy compares with τ, (n, K) float32.

    Args:
        kind: Of the policy.
        scores: (n, K) float32 similarities, best first.
        relevance: (n, K) float32 probabilities, which `probability` needs.

    Raises:
        ValueError: Where they are missing.
    """
    if kind == "probability":
        if relevance is None:
            raise ValueError("the policy probability needs relevance")  # a release without a model cannot have it
        return relevance
    return relative(scores) if kind == "relative" else scores


def relative(scores: Float32) -> Float32:
    """Return each score over the query's best score, divided in float64 and rounded once to float32; 1 for the best.

    It is 0 for every result of a query whose best score is 0 or less: nothing resembles the query, so there is nothing
    to be close to, and any τ above 0 drops them all.

    Args:
        scores: (n, K) float32, best first.

    Returns:
        (n, K) float32.
    """
    best = scores[:, :1].astype(np.float64)
    share = np.divide(scores, best, out=np.zeros(scores.shape), where=best > 0)
    with np.errstate(over="ignore"):  # −∞ where the best is next to nothing and another far below it: dropped
        return share.astype(np.float32)


def keep(decisions: Float32, threshold: np.float32 | None) -> Mask:
    """Return which results pass the cut, bool of the shape of `decisions`.

    Args:
        decisions: float32 decision scores of any shape.
        threshold: None keeps all; 0.0 is a threshold.
    """
    if threshold is None:
        return np.ones(decisions.shape, dtype=np.bool_)
    return decisions >= threshold


def keep_answered(decisions: Float32, threshold: np.float32 | None, answered: Mask | None) -> Mask:
    """Return which results users get, (n, K) bool: none of a refused query, else those that pass the cut and the best.

    Whether a query is answered is one decision, taken and certified for the query as a whole; the cut only decides
    which of the others come with the best result.

    Args:
        decisions: (n, K) float32 decision scores, in the order of similarity.
        threshold: As in `keep`.
        answered: (n,) bool, which queries are answered; None where no query is ever refused: then the cut alone
            decides.
    """
    kept = keep(decisions, threshold)
    if answered is None:
        return kept
    kept[:, :1] = True
    result: Mask = kept & answered[:, None]
    return result
