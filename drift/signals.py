"""What is watched: variables in 0…1 of each query, with their means at calibration."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from taugate.drift.observations import Float64, Observations, calibration_observations, shifted
from taugate.retrieval.release.reference import Reference
from taugate.retrieval.vectors.similarity import Float32

# Parts of the distribution of the top-K's similarities that are watched: the middle, both tails, and what hardly ever
# happens, which tells foreign queries soonest.
_PERCENTILES = (0.1, 5, 50, 95, 99.9)
# Probability that by sampling alone any variable's mean at calibration is further from the truth than is allowed for:
# as with every interval of a release.
_UNLUCKY = 0.05
_MOST_VARIABLES = 2 * len(_PERCENTILES) + 4

Seen = TypeVar("Seen")


class Bounds(NamedTuple):
    """Between which V means are no drift, (V,) each in 0…1."""

    lower: Float64
    upper: Float64

    def hold(self, means: Float64) -> bool:
        """Whether all means, (V,), are within."""
        return bool(((means >= self.lower) & (means <= self.upper)).all())

    def widened(self, other: "Bounds") -> "Bounds":
        """The smallest bounds that hold what either does."""
        return Bounds(np.minimum(self.lower, other.lower), np.maximum(self.upper, other.upper))

    def shifted(self, effect: float) -> "Bounds":
        """Further out by an effect, Cohen's h."""
        return Bounds(shifted(self.lower, -effect), shifted(self.upper, effect))


@dataclass(frozen=True)
class Signal(Generic[Seen]):
    """variables: of n things seen, (n, V) in 0…1; means: (V,) theirs at calibration, over `queries` queries."""

    name: str
    variables: Callable[[Seen], Float64]
    means: Float64
    queries: int

    @property
    def calibrated(self) -> Bounds:
        """Where the true means are, as the calibration knows them.

        The mean of q queries is off by 1/√q in Cohen's h (standard deviation).
        """
        quantile = NormalDist().inv_cdf(1 - _UNLUCKY / (2 * _MOST_VARIABLES))
        return Bounds(self.means, self.means).shifted(float(quantile / np.sqrt(self.queries)))


def query_signals(reference: Reference, theta: float) -> list[Signal[Observations]]:
    """What is watched of every query; theta: θ of the calibration, the percentile of all its top-K similarities."""
    ranks = sorted({0, reference.top.shape[1] - 1})
    levels = np.percentile(reference.top[:, ranks], _PERCENTILES, axis=0).astype(np.float32)
    calibration = calibration_observations(reference)

    def top(seen: Observations) -> Float64:
        below: Float64 = (seen.top[:, None, ranks] <= levels).reshape(len(seen), -1).astype(np.float64)
        return below

    def roe(seen: Observations) -> Float64:
        above: Float64 = (seen.random > theta).mean(axis=1, keepdims=True, dtype=np.float64)
        return above

    def empty(seen: Observations) -> Float64:
        none: Float64 = (seen.kept == 0)[:, None].astype(np.float64)
        return none

    def dropped(seen: Observations) -> Float64:
        rest: Float64 = 1.0 - seen.kept[:, None].astype(np.float64) / seen.top.shape[1]
        return rest

    named = {"topk_similarity": top, "roe": roe, "empty_responses": empty, "dropped_share": dropped}
    return [
        Signal(name, variables, variables(calibration).mean(axis=0), len(reference))
        for name, variables in named.items()
    ]


def feedback_signal(reference: Reference, theta: float) -> Signal[Float32]:
    """What is watched of similarities with documents that were judged relevant, (n,): the share above θ, as in COE.

    Judged is what was shown, so that it is compared with correct documents that the policy keeps.
    """

    def coe(correct: Float32) -> Float64:
        return (correct > theta)[:, None].astype(np.float64)

    shown = reference.correct[reference.correct_kept]
    means = coe(shown).mean(axis=0) if len(shown) else np.ones(1)
    return Signal("coe", coe, means, max(1, len(shown)))
