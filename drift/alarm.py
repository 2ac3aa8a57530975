"""One alarm: on when the evidence is there, off when the traffic is back within bounds."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.drift.blocks import FEWEST, FIFTHS, ROUNDING, Fifth
from taugate.drift.observations import Float64
from taugate.drift.signals import Bounds

# λ as a share of the largest one that keeps L positive. The mean of a block varies little, so that the boldest bet is
# the best one against a clear shift; the cautious ones are for shifts that only some of the blocks show.
_STAKES = np.array([1 / 8, 1 / 2, 0.95])
_LEAST = 1e-12  # of a probability whose logarithm is taken


class Evidence:
    """Of V means, each with a lower and an upper bound, (V,) in 0…1.

    A lower bound of 0 and an upper one of 1 cannot be crossed, and are not watched.
    """

    def __init__(self, lower: Float64, upper: Float64) -> None:
        below, above = np.flatnonzero(lower > 0), np.flatnonzero(upper < 1)
        self._columns = np.concatenate([below, above])
        self._bounds = np.concatenate([lower[below], upper[above]])
        self._signs = np.concatenate([-np.ones(len(below)), np.ones(len(above))])
        room = np.concatenate([1 - lower[below], upper[above]])  # between the bound and the far end
        self._rates = _STAKES / room[:, None]
        self.restart()

    def restart(self) -> None:
        """Forget what was seen."""
        self.logs = np.zeros(self._rates.shape)  # of M: a row for each bound, a column for each stake

    def update(self, means: Float64) -> None:
        """Take the means of one more block, (V,)."""
        beyond = self._signs * (means[self._columns] - self._bounds)
        self.logs = np.maximum(self.logs, 0) + np.log1p(self._rates * beyond[:, None])

    @property
    def log(self) -> float:
        """Logarithm of the mean of all M, −∞ where there is nothing to watch."""
        return log_mean(self.logs) if self.logs.size else -np.inf

    def reaches(self, log: float) -> bool:
        """Whether the mean of all M does; mostly not even the largest of them does."""
        return bool(self.logs.size and self.logs.max() >= log and self.log >= log)

    def growth(self, means: Float64, queries: int) -> tuple[Float64, Float64]:
        """Mean and standard deviation of log L for blocks of independent queries whose true means are these.

        means: (V,); queries: in a block. Both results have the shape of `logs`. Exact where variables are 0 or 1, so
        that a block has a binomial number of ones; others vary less.
        """
        mean = means[self._columns, None]
        ones = np.arange(queries + 1)
        chances = _binomial(ones, queries, np.clip(mean, _LEAST, 1 - _LEAST))[:, None, :]
        beyond = self._signs[:, None] * (ones / queries - self._bounds[:, None])
        logs = np.log1p(self._rates[:, :, None] * beyond[:, None, :])
        growth = (chances * logs).sum(axis=2)
        return growth, np.sqrt((chances * (logs - growth[:, :, None]) ** 2).sum(axis=2))


def _binomial(ones: NDArray[np.int64], of: int, mean: Float64) -> Float64:
    """Probabilities of so many ones."""
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, of + 1)))])
    choices = factorials[of] - factorials[ones] - factorials[of - ones]
    chances: Float64 = np.exp(choices + ones * np.log(mean) + (of - ones) * np.log1p(-mean))
    return chances


def log_mean(logs: Float64) -> float:
    """Logarithm of the mean of numbers whose logarithms these are; at least one."""
    largest = float(logs.max())
    return largest + float(np.log(np.exp(logs - largest).sum() / logs.size))


# After which an alarm can end, the more of both. The mean of a share over 1,000 independent queries is within .062 of
# the truth (95 %, Cohen's h), which is less than the smallest effect.
_QUIET_BLOCKS, _QUIET_QUERIES = 5, 1000
# There are five times as many fifths as blocks, so that they have to show five times the evidence.
_MORE_FIFTHS = float(np.log(FIFTHS))
_LEAST_THRESHOLD = 1.0  # where false alarms may come with every block: some evidence is still asked for
_NINE_OF_TEN = NormalDist().inv_cdf(0.9)
# Times the logarithm that an alarm takes: more than the average of any number of replicas without Redis asks of one.
_MOST_SHOWN = 2.0


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
        self._since: deque[Float64] = deque()  # means of the last blocks of the alarm

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the evidence of blocks or of fifths, −∞ where the signal has nothing that could move."""
        return max(self._blocks.log, self._fifths.log - _MORE_FIFTHS)

    @property
    def share_of_threshold(self) -> float:
        """Logarithm of the evidence over that which an alarm takes: 0 is none, 1 an alarm, which keeps its highest."""
        share = min(max(self.log_evidence / self.threshold, 0.0), _MOST_SHOWN)
        return max(self._peak, share)

    def update(self, fifth: Fifth, means: slice) -> bool:
        """Take a fifth of a block, and the block with its last one; whether the alarm has begun or ended.

        means: which columns of the fifth are this signal's.
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
            if len(self._since) == quiet and self.bounds.hold(np.mean(self._since, axis=0)):
                self._end()
        return self.on != was_on

    def _end(self) -> None:
        self.on, self._peak = False, 0.0
        self._since.clear()
        self._blocks.restart()
        self._fifths.restart()

    def finds(self, means: Float64, blocks: int, size: int) -> bool:
        """Whether so many blocks with these true means are an alarm, nine times out of ten; size: queries in one.

        Computed, for independent queries, whatever was seen so far.
        """
        logs = [-np.inf]
        for evidence, times, queries, more in (
            (self._blocks, blocks, size, 0.0),
            (self._fifths, blocks * FIFTHS, size // FIFTHS, _MORE_FIFTHS),
        ):
            growth, spread = evidence.growth(means, queries)
            if growth.size:
                logs.append(log_mean(times * growth - _NINE_OF_TEN * np.sqrt(times) * spread) - more)
        return max(logs) >= self.threshold

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
        if (
            {*packed} != {*own}
            or any(
                packed[name].dtype != array.dtype
                or (packed[name].shape[1:] if name == "since" else packed[name].shape)
                != (array.shape[1:] if name == "since" else array.shape)
                or not np.isfinite(packed[name]).all()
                for name, array in own.items()
            )
            or not _sensible(bool(packed["on"][0]), float(packed["peak"][0]), packed["since"])
        ):
            raise ValueError("no state of an alarm")
        self.on, self._peak = bool(packed["on"][0]), float(packed["peak"][0])
        self._blocks.logs, self._fifths.logs = packed["blocks"].copy(), packed["fifths"].copy()
        self._since = deque(packed["since"].copy())


def _sensible(on: bool, peak: float, since: Float64) -> bool:
    """Whether the parts of a state go together."""
    if not on:
        return peak == 0 and not len(since)
    return (
        1 <= peak <= _MOST_SHOWN
        and len(since) <= _QUIET_QUERIES // FEWEST
        and bool(((since >= -ROUNDING) & (since <= 1 + ROUNDING)).all())
    )


def threshold(seldom: float, alarms: int, block: int) -> float:
    """Natural logarithm of the evidence with which one of several alarms goes on.

    While every block, and every fifth of one, is expected within its bounds, whatever came before, a false alarm of any
    of them within N distinct queries has at most the probability N / seldom. block: distinct queries in the smallest.
    """
    # Within n blocks the evidence of blocks reaches c with probability n / c at most, and within 5n fifths that of
    # fifths reaches 5c with the same; of each alarm either may, and N queries are N / block blocks.
    return max(_LEAST_THRESHOLD, float(np.log(2 * alarms * seldom / block)))
