"""The rule that keeps or drops a result, the same everywhere: decision score ≥ τ, compared in float32.

A kind of policy is one class, with the score that it compares, what it needs and the words for it, and its entry in
POLICIES. Nothing outside this folder asks for a kind by its name.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from taugate.policy.arrays import Float32
from taugate.policy.names import Metric, PolicyKind

Mask = NDArray[np.bool_]


class DecisionScore:
    """The score of results that a kind of policy compares with τ: that of the index, unless a kind has another one.

    In words, {score} names the score of the index.
    """

    kind: ClassVar[PolicyKind]
    keeps: ClassVar[str]
    axis: ClassVar[str]
    tau: ClassVar[str] = "τ = {tau}"  # τ, in the summary of a terminal
    compared: ClassVar[str] = "{score}"
    beside: ClassVar[str] = ""  # a value, after the score of a result; empty if it is that score
    scale: ClassVar[str] = ""  # the values, beside a chart of scores of the index; empty if they are such scores
    span: ClassVar[tuple[int, int]] = (0, 1)  # lowest and highest τ that the playground offers, if they are not
    # `decide` of a result in JavaScript, for the playground, of `score`, `relevance` and the `best` score
    script: ClassVar[str] = "score"
    # lowest and highest value that a chart of thresholds shows, unless τ is beyond
    limits: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    plain: ClassVar[bool] = False  # whether it is the score of the index itself, as in the papers
    needs_model: ClassVar[bool] = False
    needs_zero: ClassVar[bool] = False  # whether it means something only if a score of 0 means unrelated
    # whether `auto` may use it if a score of 0 means unrelated, if it does not, in both cases or never
    auto_if_zero: ClassVar[tuple[bool, ...]] = ()
    # whether the best result always passes, so that every query gets one unless a rule refuses it
    keeps_best: ClassVar[bool] = False
    keeps_first: ClassVar[bool] = True  # whether the results that pass are the first ones of the list
    log_odds: ClassVar[bool] = False  # whether charts space its values by their log-odds

    def decide(self, scores: Float32, relevance: Float32 | None) -> Float32:
        """Return the decision scores, (n, K) float32.

        Args:
            scores: (n, K) float32 scores of the index, best first.
            relevance: (n, K) float32 probabilities, required if it needs a model.
        """
        return scores


class Probability(DecisionScore):
    """The estimated probability that a document is relevant."""

    kind = "probability"
    keeps = "keeps a result that is relevant with an estimated probability of at least τ"
    axis = "minimum probability of relevance"
    tau = "τ = {tau}, a probability of being relevant"
    compared = "relevance"
    scale = "relevance"
    script = "relevance"
    limits = (1e-4, 1 - 1e-4)
    needs_model = True
    auto_if_zero = (True, False)
    keeps_first = False
    log_odds = True

    def decide(self, scores: Float32, relevance: Float32 | None) -> Float32:
        """See DecisionScore.decide."""
        if relevance is None:
            raise ValueError("the policy probability needs relevance")  # a release without a model cannot have it
        return relevance


class Relative(DecisionScore):
    """The share of the query's best score."""

    kind = "relative"
    keeps = "keeps a result whose similarity is at least the share τ of the best one found for the query"
    axis = "minimum share of the best similarity"
    tau = "τ = {tau} of the best score"
    compared = "share of the best {score}"
    beside = "{} of the best similarity"
    scale = "shares of the best similarity"
    script = "Math.fround(best > 0 ? score / best : 0)"
    limits = (-1.0, np.inf)
    needs_zero = True
    auto_if_zero = (True,)
    keeps_best = True

    def decide(self, scores: Float32, relevance: Float32 | None) -> Float32:
        """See DecisionScore.decide."""
        return relative(scores)


class Gap(DecisionScore):
    """The difference from the query's best score, at most 0."""

    kind = "gap"
    keeps = "keeps a result whose {score} is below the best one found for the query by at most −τ"
    axis = "minimum difference from the best score"
    tau = "τ = {tau} from the best score"
    compared = "difference from the best {score}"
    beside = "{} from the best score"
    scale = "differences from the best similarity"
    span = (-1, 0)
    script = "Math.fround(score - best)"
    auto_if_zero = (False,)
    keeps_best = True

    def decide(self, scores: Float32, relevance: Float32 | None) -> Float32:
        """See DecisionScore.decide."""
        return gap(scores)


class Similarity(DecisionScore):
    """The score itself."""

    kind = "similarity"
    keeps = "keeps a result whose {score} with the query is at least τ"
    axis = "minimum similarity"
    plain = True
    auto_if_zero = (True, False)


class Uncut(DecisionScore):
    """The score itself, without a τ: no threshold was certified."""

    kind = "none"
    keeps = "keeps every result: there is no threshold"
    axis = Similarity.axis
    plain = True
    keeps_best = True


# In the order in which `auto` prefers them at equal evidence: a probability keeps its meaning across encoders, and a
# share of the best score does so better than a similarity.
POLICIES: Mapping[str, DecisionScore] = {
    score.kind: score for score in (Probability(), Relative(), Gap(), Similarity(), Uncut())
}


def tried(*, zero: bool) -> tuple[PolicyKind, ...]:
    """Return the kinds that `auto` may use, preferred ones first; `zero`: whether a score of 0 means unrelated."""
    return tuple(score.kind for score in POLICIES.values() if zero in score.auto_if_zero)


def relative(scores: Float32) -> Float32:
    """Return scores, (n, K) float32, best first, as shares of the query's best score, rounded once to float32."""
    # Shares are 0 for all results of a query whose best score is at most 0: no document resembles the query, and any τ
    # above 0 drops them all.
    best = scores[:, :1].astype(np.float64)
    share = np.divide(scores, best, out=np.zeros(scores.shape), where=best > 0)
    with np.errstate(over="ignore"):  # −∞, so dropped, if the best score is tiny and another far below it
        return share.astype(np.float32)


def gap(scores: Float32) -> Float32:
    """Return scores, (n, K) float32, best first, less the query's best score, rounded once to float32."""
    # A constant that is added to all scores of a query does not change them, so they suit log-odds and distances, whose
    # shares of the best score mean nothing.
    difference: Float32 = (scores.astype(np.float64) - scores[:, :1].astype(np.float64)).astype(np.float32)
    return difference


@dataclass(frozen=True)
class StratumThresholds:
    """Certified thresholds of searches with a filter on one value of a metadata field."""

    field: str
    taus: Mapping[Hashable, float]  # thresholds by the key of a value, for values with a certified threshold


@dataclass(frozen=True)
class Policy:
    """A decision score and the threshold τ that it is compared with."""

    kind: PolicyKind  # what is compared with τ: a key of POLICIES
    tau: float | None  # threshold in units of the decision score; None keeps all
    k: int
    metric: Metric = "accuracy"
    # whether τ is not calibrated: it rests on too few queries, or on other documents, or was given
    provisional: bool = False
    strata: StratumThresholds | None = None  # thresholds of filtered searches; None without any
    certified: bool = True  # whether the calibration holds for the searched documents

    def within(self, field: str | None, value: Hashable = None) -> "Policy":
        """Return the policy of a filtered search: that of its stratum, else this one without its certificate.

        Args:
            field: The field of which the filter selects exactly one value; None for any other filter.
        """
        tau = self.strata.taus.get(value) if self.strata is not None and field == self.strata.field else None
        return replace(self, certified=False) if tau is None else replace(self, tau=tau)

    @property
    def threshold(self) -> np.float32 | None:
        """τ rounded once to float32 for comparison, so every machine keeps scores equal to it."""
        return None if self.tau is None else np.float32(self.tau)

    def covers(self, k: int) -> bool:
        """Return whether the calibration for the first K results holds for the first k; never for a provisional τ."""
        # A cut by score keeps a prefix of the list, so it cannot lose more hits among fewer results, but it may among
        # more. A cut by probability may keep the second relevant document and drop the first. NDCG is relative to an
        # ideal that shrinks with k, so a document counts more. Both of these are certified for K only.
        if self.tau is None or self.provisional or not self.certified:
            return False
        loses_no_more = POLICIES[self.kind].keeps_first and self.metric != "ndcg"
        return k <= self.k if loses_no_more else k == self.k


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
        answered: (n,) bool, which queries are answered; None if no query can be refused, so that only the cut decides.
    """
    kept = keep(decisions, threshold)
    if answered is None:
        return kept
    kept[:, :1] = True
    result: Mask = kept & answered[:, None]
    return result
