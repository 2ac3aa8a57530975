"""Confidence sequences of live shares: intervals that hold at all times, however often they are looked at.

A share is a ratio θ = E[y] / E[x] over the traffic, for example lost answers over answerable queries. Some queries are
drawn to be judged, each with a known probability π. Let f and g be predictions of y and x, known for every query.
Between two draws, the traffic adds Σ (f − θ·g), and the draw that ends this stretch adds (y − f − θ·(x − g)) / π.
Together their mean is 0, by Wald's equation, whatever the predictions are worth (Angelopoulos et al.,
"Prediction-powered inference", Science 382, 2023). So each judged draw is worth two numbers a, b with E[a − θ·b] = 0,
scaled to be at most about 1.

For each θ of a grid, bets on a − θ·b being positive, and on its being negative, multiply a wealth of 1 by 1 + λ·(a −
θ·b), with λ fixed in advance. At the true share no bet gains on average, so the wealth reaches 2/α with a probability
of at most α/2 (Ville). The interval has every θ that neither wealth has excluded (Waudby-Smith and Ramdas, "Estimating
means of bounded random variables by betting", JRSS B 86, 2024, sections 4.3 and 5). Each side tests one direction, so
it is valid as well if the share varies: then it was above the lower bound, and below the upper one, at some time.

Judgements may arrive in any order that does not depend on what they say. Queries for one document, or repeats of one
question, are a cluster: among the judgements of a block each cluster makes one bet, on its mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taugate.policy.arrays import Float64

CONFIDENCE = 0.95
BLOCK = 16  # clusters whose judgements are collected before they bet, so that a burst makes one bet
RECENT = 240  # bets after which the sequence of recent traffic starts anew; it has from one to two times as many
_GRID = np.concatenate([np.arange(1, 100) / 1000, np.arange(20, 60) / 200, np.arange(15, 50) / 50])
# λ as a multiple of θ·E[b] / E[(a − θ·b)²]. Against rare losses of 1 with twice the mean θ, Kelly's bet is 2.
_STAKES = np.array([[0.7, 2.0, 5.0], [0.25, 0.5, 1.2]])[:, :, None]
_LOG_WEIGHTS = np.log([[0.25, 0.5, 0.25], [0.25, 0.5, 0.25]])[:, :, None]
_SIGNS = np.array([1.0, -1.0])[:, None, None]
_FLOOR = 0.7  # of the mean probability to be drawn: a rare draw must not outweigh all others
_MOST = 0.95  # of the λ at which a single bet could lose everything
_PRIOR = 8.0  # bets that the variance of a share of ones, θ·(1 − θ), stands for at the start
_CLIP = 0.2  # most that predictions may add to a, as a share of its scale


class ShareBounds(NamedTuple):
    """Bounds of a share."""

    lower: float = 0.0
    upper: float = 1.0

    def intersected(self, other: "ShareBounds") -> "ShareBounds":
        """Return what both intervals have in common; the other one if that is nothing."""
        both = ShareBounds(max(self.lower, other.lower), min(self.upper, other.upper))
        return both if both.lower <= both.upper else other


class Outcome(NamedTuple):
    """Numerator and denominator of a share for one query: what was judged, or is predicted."""

    y: float
    x: float


@dataclass(frozen=True, slots=True)
class Draw:
    """A query that was drawn to be judged, with what the traffic since the draw before has predicted."""

    cluster: int  # equal for queries that count as one
    scale: float  # weight of the draw: the smallest probability over its own one, at most 1
    predicted: tuple[Outcome, ...]  # prediction for the query, for each share
    # Sums of the predictions since the last draw, this one included, for each share; scaled by the smallest
    # probability, so that they compare with the weight.
    since: tuple[Outcome, ...]

    def unit(self, share: int, judged: Outcome) -> Float64:
        """Return what a judgement is worth to a share: cluster-free numbers (y, x) and those of the predictions."""
        predicted, since = self.predicted[share], self.since[share]
        return np.array(
            [
                self.scale * judged.y,
                self.scale * judged.x,
                self.scale * predicted.y - since.y,
                self.scale * predicted.x - since.x,
                1.0,
            ]
        )


class Sampler:
    """Draws queries with known probabilities, more of those whose outcome is uncertain."""

    def __init__(self, share: float, shares: int = 2) -> None:
        """Draw a share of the traffic, for so many shares to be estimated."""
        self.share = share
        self._smallest = _FLOOR * share
        self._mean = 0.2  # of the interest of queries
        self._since = np.zeros((shares, 2))

    def propensity(self, interest: float) -> float:
        """Return the probability to draw a query; `interest` ≥ 0 is relative to that of other queries."""
        share = min(max(self.share * interest / self._mean, self._smallest), 4 * self.share, 1.0)
        self._mean += 0.01 * (interest - self._mean)
        return share

    def offer(
        self, cluster: int, predicted: Sequence[Outcome], propensity: float, chance: float, weight: float = 1.0
    ) -> Draw | None:
        """Return the draw if `chance`, uniform in 0…1, is below the propensity.

        `weight`, at most 1, is the inverse probability with which the query was itself drawn from the traffic, scaled.
        """
        # Predictions are cut so that they cannot outweigh a judgement, without regard to what is drawn or judged.
        scale = self._smallest * weight
        reach = min(1.0, _CLIP * propensity / scale)
        clipped: list[Outcome] = []
        for sums, outcome in zip(self._since, predicted, strict=True):
            step = scale * np.array([min(outcome.y, reach), outcome.x])
            fits = bool((sums + step <= (_CLIP, 1.0)).all())
            clipped.append(Outcome(min(outcome.y, reach), outcome.x) if fits else Outcome(0.0, 0.0))
            sums[:] += step * fits
        if chance >= propensity:
            return None
        since = tuple(Outcome(*pair) for pair in self._since.tolist())
        self._since[:] = 0.0
        return Draw(cluster, scale / propensity, tuple(clipped), since)


class Bets:
    """One confidence sequence: the wealth of bets on each θ of a grid being too low, and too high."""

    def __init__(self, grid: Float64, level: float, limit: float) -> None:
        """Start with a wealth of 1; the true share is ever excluded with a probability of at most `level`.

        Bets are best for shares about `limit`.
        """
        self._grid, self._required = grid, math.log(2 / level)
        self._targets = np.stack([np.maximum(grid, limit), grid])[:, None]
        self.logs = np.zeros((2, _STAKES.shape[1], len(grid)))
        self.peaks = np.zeros((2, len(grid)))
        self.moments = np.zeros(6)  # number of bets, Σa, Σb, Σa², Σab, Σb²

    @property
    def interval(self) -> ShareBounds:
        """The shares that were never excluded."""
        excluded = self.peaks >= self._required
        below, above = (
            int(np.logical_and.accumulate(excluded[0]).sum()),
            int(np.logical_and.accumulate(excluded[1][::-1]).sum()),
        )
        grid = self._grid
        return ShareBounds(float(grid[below - 1]) if below else 0.0, float(grid[-above]) if above else 1.0)

    def add(self, units: Float64, weight: float) -> None:
        """Bet on (n, 2) numbers a, b; `weight` is the one of predictions in them, 0…1."""
        steps = units[:, 0, None] - self._grid * units[:, 1, None]
        rates = self._rates(weight)
        for step in steps:
            self.logs += np.log1p(_SIGNS * rates * step)
            weighted = self.logs + _LOG_WEIGHTS
            largest = weighted.max(axis=1)
            mixed = largest + np.log(np.exp(weighted - largest[:, None]).sum(axis=1))
            self.peaks = np.maximum(self.peaks, mixed)
        (aa, ab), (_, bb) = units.T @ units
        self.moments += [len(units), *units.sum(axis=0), aa, ab, bb]

    def bets_to_go(self, limit: float, weight: float) -> float:
        """Return how many more bets exclude shares of `limit` and above, at the present rate; infinite if none do."""
        at = int(np.searchsorted(self._grid, limit))
        rest = self._required - float(self.peaks[1, at])
        if rest <= 0:
            return 0.0
        n, a, b = self.moments[:3] + np.array([1, limit / 2, 1])
        gain = -(a - limit * b) / n * self._rates(weight)[1, :, at]
        growth = float((gain - gain**2 / 2 - self._rates(weight)[1, :, at] ** 2 * self._variance()[at] / 2).max())
        return rest / growth if growth > 0 else math.inf

    def _variance(self) -> Float64:
        n, _, _, aa, ab, bb = self.moments
        prior = _PRIOR * _FLOOR**2 * self._grid * (1 - self._grid)
        variance: Float64 = (aa - 2 * self._grid * ab + self._grid**2 * bb + prior) / (n + _PRIOR)
        return variance

    def _rates(self, weight: float) -> Float64:
        """Return λ of each side, stake and θ, from earlier bets alone."""
        grid, scale = self._grid, (self.moments[2] + _PRIOR * _FLOOR) / (self.moments[0] + _PRIOR)
        lowest = weight * _CLIP + grid * (1 + weight)
        highest = 1 + weight * (_CLIP + grid)
        rates = _STAKES * np.maximum(scale, 0.01) * self._targets / self._variance()
        limited: Float64 = np.minimum(rates, _MOST / np.stack([lowest, highest])[:, None])
        return limited


class LiveShare:
    """The sequences of one share: of all traffic since the start, and of recent traffic."""

    def __init__(self, level: float = 1 - CONFIDENCE, limit: float | None = None) -> None:
        """Start without judgements; `limit` is a share to be compared with."""
        self._level, self.limit = level, limit
        self._grid = np.unique(_GRID if limit is None or not 0 < limit < 1 else np.append(_GRID, limit))
        self.all = Bets(self._grid, level, limit or 0.05)
        self._recent = [Bets(self._grid, level / 2, limit or 0.05)]
        self._started = 1
        self._open: dict[int, Float64] = {}  # sums of the units of each cluster since the last bet
        self._products = np.array([0.05, 0.1])  # of units and their predictions, and of predictions, with a prior
        self.judged = 0

    @property
    def recent(self) -> ShareBounds:
        """The interval of recent traffic: of the last 240 to 480 clusters."""
        return self._recent[0].interval

    @property
    def lower(self) -> float:
        """The larger lower bound of both sequences."""
        return max(self.all.interval.lower, self.recent.lower)

    @property
    def judgements_to_go(self) -> float:
        """Judgements until the upper bound is below the limit, at the present rate; NaN without one."""
        if self.limit is None:
            return math.nan
        return max(0.0, math.ceil(self.all.bets_to_go(self.limit, self._weight) - len(self._open)))

    def add(self, cluster: int, unit: Float64) -> None:
        """Add a judged query, see `Draw.unit`."""
        self.judged += 1
        self._open[cluster] = self._open.get(cluster, 0.0) + unit
        if len(self._open) < BLOCK:
            return
        units = np.array([total / total[-1] for total in self._open.values()])
        self._open, weight = {}, self._weight
        for bets in (self.all, *self._recent):
            bets.add(units[:, :2] - weight * units[:, 2:4], weight)
        at = 0.05 if self.limit is None else self.limit
        labels, predictions = units[:, 0] - at * units[:, 1], units[:, 2] - at * units[:, 3]
        self._products += [labels @ predictions, predictions @ predictions]
        if self._recent[-1].moments[0] >= RECENT:
            self._started += 1
            self._recent = [
                self._recent[-1],
                Bets(self._grid, self._level / (self._started * (self._started + 1)), self.limit or 0.05),
            ]

    @property
    def _weight(self) -> float:
        """Weight of the predictions, from earlier judgements alone: the slope of judgements on predictions."""
        return float(np.clip(self._products[0] / self._products[1], 0, 1))
