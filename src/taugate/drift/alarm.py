"""One alarm: on when there is enough evidence of drift, off when the traffic is back within its bounds."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.drift.blocks import FIFTHS, ROUNDING, Fifth
from taugate.drift.e_detectors import EDetectors, log_mean
from taugate.drift.observations import Float64
from taugate.drift.rules import DEFAULT_RULES, MIN_IN_BLOCK, Rules
from taugate.drift.signals import Bounds, Signal

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


@dataclass(frozen=True, slots=True)
class Change:
    """The beginning or end of an alarm, caused by the query or judgement in this row of the batch."""

    signal: str
    row: int
    on: bool


class Alarm:
    """The alarm of one signal with V variables.

    Attributes:
        signal: Name of the signal.
        bounds: Bounds of the means of blocks.
        threshold: Natural logarithm of the evidence that raises the alarm, see `threshold`.
        handicap: Natural logarithm of how many times as much evidence is required, because its blocks are smaller.
        on: Whether the alarm is on.
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
        """Take over a state from `pack`.

        Raises:
            ValueError: If it is not one; the alarm is then unchanged.
        """
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
