"""One alarm: on when the evidence is there, off when the traffic is back within bounds."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.drift.blocks import FEWEST, FIFTHS, ROUNDING, Fifth
from taugate.drift.e_detectors import EDetectors, log_mean
from taugate.drift.observations import Float64
from taugate.drift.signals import Bounds

# After which an alarm can end, the more of both. The mean of a share over 1,000 independent queries is within .062 of
# the truth (95 %, Cohen's h), which is less than the smallest effect.
_QUIET_BLOCKS, _QUIET_QUERIES = 5, 1000
# There are five times as many fifths as blocks, so that they have to show five times the evidence.
_MORE_FIFTHS = float(np.log(FIFTHS))
_MIN_THRESHOLD = 1.0  # where false alarms may come with every block: some evidence is still asked for
_NINE_OF_TEN = NormalDist().inv_cdf(0.9)
# Times the logarithm that an alarm takes: more than the average of any number of replicas without Redis asks of one.
_MAX_SHOWN = 2.0


@dataclass(frozen=True, slots=True)
class Change:
    """The beginning or end of an alarm.

    signal: its name. row: of the query or judgement that caused it, in the batch. on: whether the alarm began.
    """

    signal: str
    row: int
    on: bool


class Alarm:
    """The alarm of one signal with V variables; `on` tells whether it is on.

    signal: its name. bounds: of the means of blocks. wide: of the means of their fifths. threshold: natural logarithm
    of the evidence that an alarm takes, as `threshold` returns it.
    """

    def __init__(self, signal: str, bounds: Bounds, wide: Bounds, threshold: float) -> None:
        self.signal, self.bounds, self.threshold = signal, bounds, threshold
        self.on = False
        self._peak = 0.0  # of the alarm
        self._blocks, self._fifths = EDetectors(*bounds), EDetectors(*wide)
        self._since: deque[Float64] = deque()  # means of the last blocks of the alarm

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the evidence, the larger of blocks' and fifths'; −∞ where the signal cannot move."""
        return max(self._blocks.log, self._fifths.log - _MORE_FIFTHS)

    @property
    def share_of_threshold(self) -> float:
        """Log evidence over the threshold: 0 is none, 1 an alarm; while an alarm is on, the highest it has reached."""
        share = min(max(self.log_evidence / self.threshold, 0.0), _MAX_SHOWN)
        return max(self._peak, share)

    def update(self, fifth: Fifth, means: slice) -> bool:
        """Add a fifth of a block, and the block with its last fifth; returns whether the alarm has begun or ended.

        fifth: with the means of several signals. means: the columns that are this signal's.
        """
        self._fifths.update(fifth.mean[means])
        if fifth.block is not None:
            self._blocks.update(fifth.block[means])
        was_on = self.on
        self.on = was_on or self._blocks.reaches(self.threshold) or self._fifths.reaches(self.threshold + _MORE_FIFTHS)
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

    def finds(self, means: Float64, blocks: int, size: int) -> bool:
        """Tell whether blocks with given true means raise the alarm nine times out of ten.

        It is computed for independent queries, whatever was seen so far.

        means: (V,) float64, the true means. blocks: how many. size: queries in a block.
        """
        logs = [-np.inf]
        for detectors, times, queries, more in (
            (self._blocks, blocks, size, 0.0),
            (self._fifths, blocks * FIFTHS, size // FIFTHS, _MORE_FIFTHS),
        ):
            growth, spread = detectors.growth(means, queries)
            if growth.size:
                logs.append(log_mean(times * growth - _NINE_OF_TEN * np.sqrt(times) * spread) - more)
        return max(logs) >= self.threshold

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
        """Take over a state from `pack`. Raises ValueError for anything else, and nothing has changed then."""
        own = self.pack()
        if (
            {*packed} != {*own}
            or any(
                packed[name].dtype != array.dtype
                or (packed[name].shape[1:] if name == "since" else packed[name].shape)
                != (array.shape[1:] if name == "since" else array.shape)
                or not np.isfinite(packed[name]).all()
                for name, array in own.items()
            )
            or not _is_consistent(bool(packed["on"][0]), float(packed["peak"][0]), packed["since"])
        ):
            raise ValueError("no state of an alarm")
        self.on, self._peak = bool(packed["on"][0]), float(packed["peak"][0])
        self._blocks.logs, self._fifths.logs = packed["blocks"].copy(), packed["fifths"].copy()
        self._since = deque(packed["since"].copy())


def _is_consistent(on: bool, peak: float, since: Float64) -> bool:
    """Tell whether the parts of a packed state fit each other."""
    if not on:
        return peak == 0 and not len(since)
    return (
        1 <= peak <= _MAX_SHOWN
        and len(since) <= _QUIET_QUERIES // FEWEST
        and bool(((since >= -ROUNDING) & (since <= 1 + ROUNDING)).all())
    )


def threshold(average_run_length: float, alarms: int, block: int) -> float:
    """Return the natural logarithm of the evidence with which one of several alarms goes on.

    While every block, and every fifth of one, is expected within its bounds, whatever came before, the probability that
    any of the alarms goes on within N distinct queries is at most N / average_run_length.

    average_run_length: distinct queries. alarms: how many there are. block: distinct queries in the smallest block.
    """
    # Within n blocks the evidence of blocks reaches c with probability n / c at most, and within 5n fifths that of
    # fifths reaches 5c with the same; of each alarm either may, and N queries are N / block blocks.
    return max(_MIN_THRESHOLD, float(np.log(2 * alarms * average_run_length / block)))
