"""One alarm: on when the evidence is there, off when the traffic is back within bounds."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.drift.blocks import FIFTHS, Fifth
from retrieval.drift.effect import Float64
from retrieval.drift.evidence import Evidence, log_mean
from retrieval.drift.signals import Bounds

# Blocks after which an alarm can end. The mean of a share over 1,000 independent queries is within .062 of the truth
# (95 %, Cohen's h), which is less than the smallest effect.
_QUIET = 5
# Each lane has half of the weight of an e-detector that counts queries. Counted in blocks, as the evidence is, a block
# is worth as much as its fifths together.
_BLOCKS = np.log(FIFTHS / (FIFTHS + 1))
_FIFTHS = np.log(1 / (FIFTHS + 1))
_LEAST_THRESHOLD = 1.0  # where false alarms may come with every block: some evidence is still asked for
_NINE_OF_TEN = NormalDist().inv_cdf(0.9)
_MOST_SHOWN = 2.0  # times the evidence of an alarm: enough for the average over any number of replicas


@dataclass(frozen=True, slots=True)
class Change:
    """An alarm that begins or ends with the row-th of what was seen."""

    signal: str
    row: int
    on: bool


class Alarm:
    """Of one signal with V variables.

    bounds: of the means of blocks; wide: of the means of their fifths; threshold: natural logarithm of the evidence
    that an alarm takes, see `threshold`.
    """

    def __init__(self, signal: str, bounds: Bounds, wide: Bounds, threshold: float) -> None:
        self.signal, self.bounds, self.threshold = signal, bounds, threshold
        self.on = False
        self._peak = 0.0  # of the alarm
        self._blocks, self._fifths = Evidence(*bounds), Evidence(*wide)
        self._since: deque[Float64] = deque(maxlen=_QUIET)  # means of the last blocks of the alarm

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the evidence, −∞ where the signal has nothing that could move."""
        return float(np.logaddexp(_BLOCKS + self._blocks.log, _FIFTHS + self._fifths.log))

    @property
    def share_of_threshold(self) -> float:
        """Logarithm of the evidence over that which an alarm takes: 0 is none, 1 an alarm, which keeps its highest."""
        share = float(np.clip(self.log_evidence / self.threshold, 0.0, _MOST_SHOWN))
        return max(self._peak, share)

    def update(self, fifth: Fifth, means: slice) -> bool:
        """Take a fifth of a block, and the block with its last one; whether the alarm has begun or ended.

        means: which columns of the fifth are this signal's.
        """
        self._fifths.update(fifth.mean[means])
        if fifth.block is not None:
            self._blocks.update(fifth.block[means])
        was_on = self.on
        self.on = was_on or self.log_evidence >= self.threshold
        if self.on:
            self._peak = self.share_of_threshold
        if was_on and fifth.block is not None:
            self._since.append(fifth.block[means])
            if len(self._since) == _QUIET and self.bounds.hold(np.mean(self._since, axis=0)):
                self._end()
        return self.on != was_on

    def _end(self) -> None:
        self.on, self._peak = False, 0.0
        self._since.clear()
        self._blocks.restart()
        self._fifths.restart()

    def finds(self, means: Float64, blocks: int, size: int) -> bool:
        """Whether so many blocks with these true means are an alarm, nine times out of ten; size: queries in one.

        Computed, for independent queries; what was seen so far does not matter, nor do the fifths.
        """
        growth, spread = self._blocks.growth(means, size)
        if not growth.size:
            return False
        logs = blocks * growth - _NINE_OF_TEN * np.sqrt(blocks) * spread
        return bool(_BLOCKS + log_mean(logs) >= self.threshold)

    def pack(self) -> dict[str, NDArray[Any]]:
        """The state as arrays, for other processes; `restore` reads it."""
        since = np.array(self._since).reshape(-1, len(self.bounds.lower))
        return {
            "on": np.array([self.on]),
            "peak": np.array([self._peak]),
            "blocks": self._blocks.logs,
            "fifths": self._fifths.logs,
            "since": since,
        }

    def restore(self, packed: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `pack` made. Raises ValueError for anything else, and nothing has changed then."""
        own = self.pack()
        if {*packed} != {*own} or any(
            packed[name].dtype != array.dtype
            or (packed[name].shape[1:] if name == "since" else packed[name].shape)
            != (array.shape[1:] if name == "since" else array.shape)
            or not np.isfinite(packed[name]).all()
            for name, array in own.items()
        ):
            raise ValueError("no state of an alarm")
        self.on, self._peak = bool(packed["on"][0]), float(packed["peak"][0])
        self._blocks.logs, self._fifths.logs = packed["blocks"].copy(), packed["fifths"].copy()
        self._since = deque(packed["since"][-_QUIET:].copy(), maxlen=_QUIET)


def threshold(seldom: float, alarms: int, block: int) -> float:
    """Natural logarithm of the evidence with which one of several alarms goes on.

    While every block's mean is expected within its bounds, whatever came before, the expected number of distinct
    queries until the first of them is a false alarm is at least `seldom`. block: distinct queries in the smallest one.
    """
    # E[M] ≤ (5/6) · blocks + (1/6) · fifths, which is queries / (.6 · block). The first of n alarms is as rare as
    # wanted when each is n times rarer.
    queries_to_one = block * (FIFTHS + 1) / (2 * FIFTHS)
    return max(_LEAST_THRESHOLD, float(np.log(seldom * alarms / queries_to_one)))
