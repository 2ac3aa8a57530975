"""Signals: variables in 0…1 of each query whose means show drift, with their means at calibration."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from taugate.drift.observations import Float64, JudgedReplies, Observations, calibration_observations
from taugate.retrieval.release.query_arrays import Reference
from taugate.retrieval.vectors.similarity import Float32

# Percentiles of the top-K similarities that are watched: the middle, both tails, and values that hardly ever occur,
# which show queries on foreign topics soonest.
_PERCENTILES = (0.1, 5, 50, 95, 99.9)
# Reciprocal ranks have few values, and another k changes how often a query has which: 61 for 60 moves all that have
# 2 / 61 to 2 / 62. About as many as before are at or below a percentile. So frequent values, which at least a hundredth
# of the queries have, are watched as well, if most queries have one. Others are equal to them by rounding at most.
_FREQUENT, _MOST, _ROUNDING = 0.01, 0.5, 1e-5
# Probability that, by sampling alone, the mean at calibration of any variable of queries is further from the truth than
# its confidence bounds allow, as with every interval of a release; the same for that of judged replies.
_UNLUCKY = 0.05
_OTHER_VARIABLES = 4  # of the other signals
_MAX_VARIABLES = 2 * len(_PERCENTILES) + _OTHER_VARIABLES  # unless scores are tied

Sample = TypeVar("Sample")  # Observations, or judged replies


def cohens_h(share: Float64, reference: Float64) -> Float64:
    """Return Cohen's h, the effect size of two shares in 0…1, positive if `share` is larger. Shapes broadcast."""
    return 2 * (np.arcsin(np.sqrt(share)) - np.arcsin(np.sqrt(reference)))


def shifted(reference: Float64, effects: Float64 | float) -> Float64:
    """Return the shares that are an effect away from a reference, limited to 0…1.

    Args:
        reference: Shares in 0…1.
        effects: Cohen's h, negative for a smaller share.
    """
    return np.sin(np.clip(np.arcsin(np.sqrt(reference)) + effects / 2, 0, np.pi / 2)) ** 2


class Bounds(NamedTuple):
    """The range of V means that counts as no drift, both ends (V,) float64 in 0…1."""

    lower: Float64
    upper: Float64

    def contain(self, means: Float64) -> bool:
        """Return whether all means, (V,) float64, are within the bounds."""
        return bool(((means >= self.lower) & (means <= self.upper)).all())

    def widened(self, other: "Bounds") -> "Bounds":
        """Return the smallest bounds that contain both."""
        return Bounds(np.minimum(self.lower, other.lower), np.maximum(self.upper, other.upper))

    def shifted(self, effect: float) -> "Bounds":
        """Return bounds that are wider by an effect, Cohen's h, on either side."""
        return Bounds(shifted(self.lower, -effect), shifted(self.upper, effect))


@dataclass(frozen=True)
class Signal(Generic[Sample]):
    """A signal with V variables.

    Attributes:
        name: Name in the metrics.
        variables: Computes the variables of n observations, (n, V) float64 in 0…1.
        means: (V,) float64, the means at calibration.
        queries: Number of calibration queries behind the means.
        judged: Whether it is of judged replies, whose blocks are smaller. Only a lower mean of them is drift: the qrels
            of a calibration may lack relevant documents, and users may be readier to judge what helps them.
    """

    name: str
    variables: Callable[[Sample], Float64]
    means: Float64
    queries: int
    judged: bool = False

    @property
    def calibrated(self) -> Bounds:
        """Confidence bounds of the true means, from the means at calibration.

        The standard deviation of a mean of q queries is 1/√q in Cohen's h. A signal of judged replies is one variable
        with one bound, of a confidence of its own; those of queries share theirs.
        """
        bounds = 1 if self.judged else 2 * max(_MAX_VARIABLES, len(self.means) + _OTHER_VARIABLES)
        error = float(NormalDist().inv_cdf(1 - _UNLUCKY / bounds) / np.sqrt(self.queries))
        both = Bounds(self.means, self.means).shifted(error)
        return both._replace(upper=np.ones_like(self.means)) if self.judged else both


def theta_of(reference: Reference, percentile: float) -> float:
    """Return θ of all calibration queries together: a percentile, 0…100, of their top-K similarities."""
    return float(np.percentile(reference.top, percentile))


def query_signals(reference: Reference, theta: float) -> list[Signal[Observations]]:
    """Return the signals of queries, without ROE if the calibration had no similarities with random documents.

    Component scores are among the variables of `topk_similarity`, because ranks hide that the similarities changed.

    `theta` is θ of the calibration, see `theta_of`.
    """
    ranks = sorted({0, reference.top.shape[1] - 1})
    watched = np.concatenate([reference.top[:, ranks], reference.component_means], axis=1)
    levels = np.percentile(watched, _PERCENTILES, axis=0).astype(np.float32)
    frequent = _frequent_scores(reference.top[:, 0])
    calibration = calibration_observations(reference)

    def top(queries: Observations) -> Float64:
        scores = np.concatenate([queries.top[:, ranks], queries.components], axis=1)
        below = (scores[:, None] <= levels).reshape(len(queries), -1)
        equal = np.abs(queries.top[:, :1] - frequent) <= _ROUNDING * np.abs(frequent)
        return np.concatenate([below, equal], axis=1).astype(np.float64)

    def roe(queries: Observations) -> Float64:
        above: Float64 = (queries.random > theta).mean(axis=1, keepdims=True, dtype=np.float64)
        return above

    def empty(queries: Observations) -> Float64:
        none: Float64 = (queries.kept == 0)[:, None].astype(np.float64)
        return none

    def dropped(queries: Observations) -> Float64:
        share: Float64 = 1.0 - queries.kept[:, None].astype(np.float64) / queries.top.shape[1]
        return share

    named = {"topk_similarity": top, "roe": roe, "empty_responses": empty, "dropped_share": dropped}
    if not len(reference.random):
        del named["roe"]
    return [
        Signal(name, variables, variables(calibration).mean(axis=0), len(reference))
        for name, variables in named.items()
    ]


def _frequent_scores(scores: Float32) -> Float32:
    """Return the values that many of (q,) float32 scores have; none unless most scores have one of them."""
    values, counts = np.unique(scores, return_counts=True)
    frequent = counts >= max(2, _FREQUENT * len(scores))
    return values[frequent] if counts[frequent].sum() >= _MOST * len(scores) else values[:0]


def quality_signal(reference: Reference) -> Signal[JudgedReplies]:
    """Return the signal of judged replies: the share that hold a relevant result.

    A reply without a result cannot be judged, so the reference is the calibration's share among replies with one.
    """
    shown = reference.correct_kept[reference.kept > 0]
    means = np.array([shown.mean() if len(shown) else 1.0])

    def relevant(replies: JudgedReplies) -> Float64:
        return replies.relevant[:, None].astype(np.float64)

    return Signal("quality", relevant, means, max(1, len(shown)), judged=True)
