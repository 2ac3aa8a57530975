"""One alarm: on when there is enough evidence of drift, off when traffic is back; and the smallest shift it detects.

E-detectors: numbers that grow while the means of blocks are beyond their bounds, the evidence of an alarm. For each
bound and each stake λ there is one, M ← max(M, 1) · L, where L is 1 plus λ times how far a mean is beyond the bound;
while the means are within, L is at most 1 on average (Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric framework
for sequential change detection", 2023; docs/drift.md).

Sensitivity: the smallest shift of the traffic that an alarm detects, computed without simulation. For blocks of
independent queries the logarithm of a bet has a known mean and deviation (`EDetectors.growth`), and so has the evidence
after n blocks. A shift is detected within n blocks, nine times out of ten, if the mean less 1.28 standard deviations
reaches the threshold. `make drift-benchmarks` verifies this by simulation.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.drift.blocks import FIFTHS, ROUNDING, Fifth
from taugate.drift.observations import Observations, calibration_observations
from taugate.drift.signals import (
    BLOCK,
    DEFAULT_RULES,
    MIN_IN_BLOCK,
    Bounds,
    Rules,
    Signal,
    cohens_h,
    quality_signal,
    query_signals,
    shifted,
    theta_of,
)
from taugate.policy.arrays import Float64
from taugate.release.evidence import DriftRecord, Shift, Shifts
from taugate.release.queries import Reference

# λ as a share of the largest one that keeps L positive. The mean of a block varies little, so the boldest bet is best
# against a clear shift; the cautious ones are for shifts that only some of the blocks show.
_STAKES = np.array([1 / 8, 1 / 2, 0.95])
_MIN_PROBABILITY = 1e-12  # so that a logarithm is finite

# Bounds of a fifth of a block are wider by this factor: its mean varies √5 times as much, and bursts move it more.
_OF_A_FIFTH = 2.0
# An alarm can end after as many quiet blocks and queries, whichever takes longer. The mean of a share over 1,000
# independent queries is within .062 of the truth (95 %, Cohen's h), which is less than the smallest effect.
_QUIET_BLOCKS, _QUIET_QUERIES = 5, 1000
# There are five times as many fifths as blocks, so they have to show five times the evidence.
_LOG_FIFTHS = float(np.log(FIFTHS))
_MIN_THRESHOLD = 1.0  # some evidence is required even if false alarms may come with every block
_NINE_OF_TEN = NormalDist().inv_cdf(0.9)
# Share of the threshold above which evidence is not shown. Averages over replicas without Redis never need more.
_MAX_SHOWN = 2.0

WITHIN = 10_000  # queries
_STEPS = 40  # of a bisection: beyond the digits of a float32
_MAX_EFFECT = float(np.pi)
_MAX_SHIFT = 2.0  # from the lowest cosine to the highest


class EDetectors:
    """The e-detectors of V means, with bounds in 0…1, (V,) float64.

    A lower bound of 0 and an upper one of 1 cannot be crossed, and are not watched.

    Attributes:
        logs: Natural logarithms of M, (bounds watched, stakes) float64.
    """

    def __init__(self, lower: Float64, upper: Float64) -> None:
        below, above = np.flatnonzero(lower > 0), np.flatnonzero(upper < 1)
        self._columns = np.concatenate([below, above])
        self._bounds = np.concatenate([lower[below], upper[above]])
        self._signs = np.concatenate([-np.ones(len(below)), np.ones(len(above))])
        margins = np.concatenate([1 - lower[below], upper[above]])  # between the bound and the far end
        self._rates = _STAKES / margins[:, None]
        self.restart()

    def restart(self) -> None:
        """Forget all evidence."""
        self.logs = np.zeros(self._rates.shape)

    def update(self, means: Float64) -> None:
        """Add the means of one more block, (V,) float64."""
        beyond = self._signs * (means[self._columns] - self._bounds)
        self.logs = np.maximum(self.logs, 0) + np.log1p(self._rates * beyond[:, None])

    @property
    def log(self) -> float:
        """Natural logarithm of the mean of all M; −∞ if no bound is watched."""
        return log_mean(self.logs) if self.logs.size else -np.inf

    def reaches(self, log: float) -> bool:
        """Return whether the logarithm of the mean of all M reaches a threshold."""
        # Usually not even the largest of them does, which is cheaper to check.
        return bool(self.logs.size and self.logs.max() >= log and self.log >= log)

    def growth(self, means: Float64, queries: int) -> tuple[Float64, Float64]:
        """Return mean and standard deviation of log L for blocks of independent queries, both of the shape of `logs`.

        Exact for variables of 0 and 1, whose sum over a block is binomial; other variables vary less. `means` is (V,)
        float64, the true means.
        """
        mean = means[self._columns, None]
        ones = np.arange(queries + 1)
        chances = _binomial(ones, queries, np.clip(mean, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY))[:, None, :]
        beyond = self._signs[:, None] * (ones / queries - self._bounds[:, None])
        logs = np.log1p(self._rates[:, :, None] * beyond[:, None, :])
        growth = (chances * logs).sum(axis=2)
        return growth, np.sqrt((chances * (logs - growth[:, :, None]) ** 2).sum(axis=2))


def _binomial(ones: NDArray[np.int64], queries: int, mean: Float64) -> Float64:
    """Return the binomial probabilities of `ones` among queries, for each mean."""
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, queries + 1)))])
    choices = factorials[queries] - factorials[ones] - factorials[queries - ones]
    chances: Float64 = np.exp(choices + ones * np.log(mean) + (queries - ones) * np.log1p(-mean))
    return chances


def log_mean(logs: Float64) -> float:
    """Return the logarithm of the mean of at least one number, from the numbers' logarithms."""
    largest = float(logs.max())
    return largest + float(np.log(np.exp(logs - largest).sum() / logs.size))


@dataclass(frozen=True, slots=True)
class Change:
    """The beginning or end of an alarm, caused by the query or judgement in this row of the batch."""

    signal: str
    row: int
    on: bool


class Alarm:
    """The alarm of one signal with V variables.

    Attributes:
        bounds: Bounds of the means of blocks.
        threshold: Natural logarithm of the evidence that raises the alarm, see `threshold`.
        handicap: Natural logarithm of how many times as much evidence is required, because its blocks are smaller.
    """

    def __init__(self, signal: str, bounds: Bounds, wide: Bounds, threshold: float, handicap: float = 0.0) -> None:
        """Start without evidence; `wide` are the bounds of the means of fifths."""
        self.signal, self.bounds, self.threshold, self.handicap = signal, bounds, threshold, handicap
        self.on = False
        self._peak = 0.0  # highest share of the threshold since the alarm began
        self._blocks, self._fifths = EDetectors(*bounds), EDetectors(*wide)
        self._since: deque[Float64] = deque()  # means of the last blocks of the alarm

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the evidence, the larger of blocks' and fifths'; −∞ if the signal cannot move."""
        return max(self._blocks.log, self._fifths.log - _LOG_FIFTHS) - self.handicap

    @property
    def share_of_threshold(self) -> float:
        """Log evidence over the threshold: 0 is none, 1 raises the alarm; while it is on, the highest value so far."""
        share = min(max(self.log_evidence / self.threshold, 0.0), _MAX_SHOWN)
        return max(self._peak, share)

    def update(self, fifth: Fifth, means: slice) -> bool:
        """Add a fifth of a block, and with the last fifth the block; returns whether the alarm has begun or ended.

        `means` are the columns of this signal in the means of all signals.
        """
        self._fifths.update(fifth.mean[means])
        if fifth.block is not None:
            self._blocks.update(fifth.block[means])
        was_on = self.on
        required = self.threshold + self.handicap
        self.on = was_on or self._blocks.reaches(required) or self._fifths.reaches(required + _LOG_FIFTHS)
        if self.on:
            self._peak = self.share_of_threshold
        if was_on and fifth.block is not None:
            self._since.append(fifth.block[means])
            quiet = max(_QUIET_BLOCKS, -(-_QUIET_QUERIES // (fifth.queries * FIFTHS)))
            while len(self._since) > quiet:
                self._since.popleft()
            if len(self._since) == quiet and self.bounds.contain(np.mean(self._since, axis=0)):
                self._end()
        return self.on != was_on

    def _end(self) -> None:
        self.on, self._peak = False, 0.0
        self._since.clear()
        self._blocks.restart()
        self._fifths.restart()

    def detects(self, means: Float64, blocks: int, size: int) -> bool:
        """Return whether so many blocks of `size` queries raise the alarm nine times out of ten, from no evidence.

        The queries are independent, and `means`, (V,) float64, are the true ones.
        """
        logs = [-np.inf]
        for detectors, times, queries, handicap in (
            (self._blocks, blocks, size, 0.0),
            (self._fifths, blocks * FIFTHS, size // FIFTHS, _LOG_FIFTHS),
        ):
            growth, deviation = detectors.growth(means, queries)
            if growth.size:
                logs.append(log_mean(times * growth - _NINE_OF_TEN * np.sqrt(times) * deviation) - handicap)
        return max(logs) >= self.threshold + self.handicap

    def pack(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays, for other processes; `restore` reads it."""
        since = np.array(self._since).reshape(-1, len(self.bounds.lower))
        return {
            "on": np.array([self.on]),
            "peak": np.array([self._peak]),
            "blocks": self._blocks.logs,
            "fifths": self._fifths.logs,
            "since": since,
        }

    def restore(self, packed: Mapping[str, NDArray[Any]]) -> None:
        """Take over a state from `pack`; raises ValueError if it is not one; the alarm is then unchanged."""
        expected = self.pack()
        if (
            {*packed} != {*expected}
            or any(
                packed[name].dtype != array.dtype
                or (packed[name].shape[1:] if name == "since" else packed[name].shape)
                != (array.shape[1:] if name == "since" else array.shape)
                or not np.isfinite(packed[name]).all()
                for name, array in expected.items()
            )
            or not _is_consistent(bool(packed["on"][0]), float(packed["peak"][0]), packed["since"])
        ):
            raise ValueError("not the state of an alarm")
        self.on, self._peak = bool(packed["on"][0]), float(packed["peak"][0])
        self._blocks.logs, self._fifths.logs = packed["blocks"].copy(), packed["fifths"].copy()
        self._since = deque(packed["since"].copy())


def _is_consistent(on: bool, peak: float, since: Float64) -> bool:
    """Return whether the parts of a packed state fit each other."""
    if not on:
        return peak == 0 and not len(since)
    return (
        1 <= peak <= _MAX_SHOWN
        and len(since) <= _QUIET_QUERIES // MIN_IN_BLOCK
        and bool(((since >= -ROUNDING) & (since <= 1 + ROUNDING)).all())
    )


def alarms_of(
    signals: Sequence[Signal[Any]], rules: Rules = DEFAULT_RULES, ordinary: Mapping[str, Bounds] = MappingProxyType({})
) -> list[Alarm]:
    """Return the alarms of all signals of a release, whose thresholds grow with the number of signals.

    `ordinary` has the bounds of a baseline by signal, which widen those of the calibration.
    """
    required = threshold(rules.average_run_length, len(signals), rules.smallest_block)
    alarms = []
    for signal in signals:
        bounds = signal.calibrated
        if signal.name in ordinary:
            bounds = bounds.widened(ordinary[signal.name])
        effect, wide, handicap = rules.smallest_effect, _OF_A_FIFTH, 0.0
        if signal.judged:
            wide, handicap = 1.0, float(np.log(rules.smallest_block / rules.judged_block))
        alarms.append(Alarm(signal.name, bounds.shifted(effect), bounds.shifted(wide * effect), required, handicap))
    return alarms


def threshold(average_run_length: float, alarms: int, block: int) -> float:
    """Return the natural logarithm of the evidence that raises one of several alarms.

    While every block, and every fifth of one, is expected within its bounds, whatever came before, the probability that
    any alarm is raised within N distinct queries is at most N / average_run_length. `block` is the number of distinct
    queries in the smallest block.
    """
    # Within n blocks the evidence of blocks reaches c with probability n / c at most, and within 5n fifths that of
    # fifths reaches 5c with the same probability; each alarm has both, and N queries are N / block blocks.
    return max(_MIN_THRESHOLD, float(np.log(2 * alarms * average_run_length / block)))


def sensitivity(reference: Reference, percentile: float) -> DriftRecord:
    """Compute the smallest shifts that the alarms of a release detect with the default settings.

    θ is a percentile, 0…100, of the top-K similarities of the calibration queries.
    """
    theta = theta_of(reference, percentile)
    topk, *shares = [*query_signals(reference, theta), quality_signal(reference)]
    alarms = {alarm.signal: alarm for alarm in alarms_of([topk, *shares])}
    shifts = {
        share.name: Shifts(
            lower=_shift_of_share(alarms[share.name], share, -1), higher=_shift_of_share(alarms[share.name], share, 1)
        )
        for share in shares
    }
    calibration = calibration_observations(reference)
    shifts[topk.name] = Shifts(
        lower=_shift_of_similarity(alarms[topk.name], topk, calibration, -1),
        higher=_shift_of_similarity(alarms[topk.name], topk, calibration, 1),
    )
    return DriftRecord(within=WITHIN, block=BLOCK, signals=shifts)


def _shift_of_share(alarm: Alarm, signal: Signal[Any], direction: int) -> Shift | None:
    """Return the smallest shift of a share, such as ROE, in one direction: −1 or 1."""
    means, block = signal.means, DEFAULT_RULES.judged_block if signal.judged else BLOCK
    h = _smallest(lambda size: _is_detected(alarm, shifted(means, direction * size), block), _MAX_EFFECT)
    if h is None:
        return None
    points = shifted(means, direction * h) - means
    return Shift(points=float(points[0]), effect=float(cohens_h(means + points, means)[0]))


def _shift_of_similarity(
    alarm: Alarm, signal: Signal[Observations], calibration: Observations, direction: int
) -> Shift | None:
    """Return the smallest shift of the similarity of all results of all queries, in one direction: −1 or 1."""

    def means(size: float) -> Float64:
        top = calibration.top + np.float32(direction * size)
        shifted_means: Float64 = signal.variables(replace(calibration, top=top)).mean(axis=0)
        return shifted_means

    # Scores with a lexical part may be further apart than cosines.
    largest = max(_MAX_SHIFT, float(np.ptp(calibration.top)))
    size = _smallest(lambda size: _is_detected(alarm, means(size)), largest)
    if size is None:
        return None
    effects = cohens_h(means(size), signal.means)
    return Shift(points=direction * size, effect=float(effects[np.abs(effects).argmax()]))


def _is_detected(alarm: Alarm, means: Float64, block: int = BLOCK) -> bool:
    return alarm.detects(means, WITHIN // block, block)


def _smallest(detected: Callable[[float], bool], largest: float) -> float | None:
    """Return the smallest size that is detected, by bisection; None if not even the largest is."""
    if not detected(largest):
        return None
    low, high = 0.0, largest
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if detected(middle) else (middle, high)
    return high
