"""Blocks of distinct queries: repeats count once, and a block is long enough that bursts are averaged within it.

The mean of a block is what the alarms see. Bursts that are shorter than a block hardly move it, and a query that is
sent a thousand times in a row counts as one of its 200.

The same query in every block would still be counted once in each. So no query counts for more than the typical one: a
query sent c times in the recent blocks, in which the median query was sent m times, has the weight min(1, m / c); the
mean of the calibration takes the remaining weight. So a health check, or a load test with ten queries, weighs next to
nothing, however unusual its queries are. The weight of a query is fixed before the block begins.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.drift.observations import Keys
from taugate.drift.signals import BLOCK, MAX_IN_BLOCK, MIN_IN_BLOCK
from taugate.policy.arrays import Float64

FIFTHS = 5  # parts of a block, each tested on its own to detect large changes early
ROUNDING = 1e-9  # tolerance of a sum of shares
_MAX_COUNT = 2**53  # of a query, so that a count is exact as a float and can still grow; never reached in practice
_REMEMBERED = 4000  # distinct queries of recent blocks whose counts are kept: 64 kB

_STEP = 40  # queries averaged in one value of the series: a fifth of the smallest block
_MAX_STEPS = 500  # of the series: the last 20,000 queries
_MIN_STEPS = 50
_LARGEST = 16 * BLOCK  # a change that lasts longer than 1,600 queries is not a burst; a baseline is for that


@dataclass(frozen=True, slots=True)
class Fifth:
    """A complete fifth of a block."""

    row: int  # row of its last query in the batch
    mean: Float64  # (V,) means
    queries: int
    block: Float64 | None  # (V,) means of the whole block if this is its last fifth, else None


class Blocks:
    """Collects queries into blocks, fifth by fifth."""

    def __init__(self, neutral: Float64, size: int = BLOCK) -> None:
        """Collect V variables, whose means at calibration are `neutral`, (V,) float64."""
        self.size = size  # distinct queries in a block; may be set between two blocks
        self._neutral = neutral
        self._recent: deque[dict[int, int]] = deque()  # how often each query of a block was sent
        self._counts: dict[int, int] = {}  # the same in all recent blocks
        self._typical = 1.0
        self._open: dict[int, int] = {}
        self._fifths = np.zeros((0, len(neutral)))  # sums of the complete fifths of the open block
        self._sum = np.zeros(len(neutral))

    def feed(self, keys: Keys, values: Float64, first_row: int = 0) -> Iterator[Fifth]:
        """Add n queries in their order; yields every fifth that they complete.

        `keys` are (n,) uint64, equal for equal queries; `values` (n, V) float64 variables in 0…1; `first_row` is the
        row of the first query in the batch.
        """
        new: list[int] = []  # rows of queries that the block did not hold
        lighter: list[tuple[int, float]] = []  # new rows with a weight below 1
        opened, end = self._open, self._end(len(self._fifths) + 1)
        for row, key in enumerate(keys.tolist()):
            if key in opened:
                opened[key] += 1
                continue
            opened[key] = 1
            count = self._counts.get(key, 0)
            if count > self._typical:
                lighter.append((len(new), self._typical / count))
            new.append(row)
            if len(opened) == end:
                self._add(values[new], lighter)
                new, lighter = [], []
                yield self._complete(first_row + row)
                opened, end = self._open, self._end(len(self._fifths) + 1)
        self._add(values[new], lighter)

    def _end(self, fifths: int) -> int:
        """Return the number of distinct queries in the block once so many fifths are complete."""
        return self.size * fifths // FIFTHS

    def _add(self, values: Float64, lighter: Sequence[tuple[int, float]]) -> None:
        self._sum += values.sum(axis=0)
        if lighter:
            rows, weights = zip(*lighter, strict=True)
            self._sum += (1 - np.array(weights)) @ (self._neutral - values[[*rows]])

    def _complete(self, row: int) -> Fifth:
        done = len(self._fifths)
        queries = self._end(done + 1) - self._end(done)
        mean = self._sum / queries
        self._fifths = np.concatenate([self._fifths, self._sum[None]])
        self._sum = np.zeros_like(self._sum)
        if done + 1 < FIFTHS:
            return Fifth(row, mean, queries, None)
        block = self._fifths.sum(axis=0) / self.size
        self._fifths = self._fifths[:0]
        self._remember(self._open)
        self._open = {}
        return Fifth(row, mean, queries, block)

    def _remember(self, block: dict[int, int]) -> None:
        counts = self._counts
        self._recent.append(block)
        for key, count in block.items():
            counts[key] = counts.get(key, 0) + count
        while len(self._recent) > 1 and sum(map(len, self._recent)) > _REMEMBERED:
            for key, count in self._recent.popleft().items():
                if counts[key] > count:
                    counts[key] -= count
                else:
                    del counts[key]
        self._typical = self._median_count()

    def _median_count(self) -> float:
        """Return how often the median query was sent in the recent blocks, 1 before there are any."""
        if not self._counts:
            return 1.0
        counts = np.fromiter(self._counts.values(), np.float64, len(self._counts))
        middle = [(len(counts) - 1) // 2, len(counts) // 2]
        return float(np.partition(counts, middle)[middle].mean())  # np.median takes twice as long

    def pack(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays, for other processes; `restore` reads it."""
        counters = [*self._recent, self._open]
        return {
            "keys": np.array([key for counter in counters for key in counter], dtype=np.uint64),
            "counts": np.array([count for counter in counters for count in counter.values()], dtype=np.int64),
            "lengths": np.array([len(counter) for counter in counters], dtype=np.int64),
            "size": np.array([self.size], dtype=np.int64),
            "fifths": self._fifths,
            "sum": self._sum.copy(),
        }

    def restore(self, packed: Mapping[str, NDArray[Any]]) -> None:
        """Take over a state from `pack`; raises ValueError if it is not one; the blocks are then unchanged."""
        if not _is_valid(packed, len(self._neutral)):
            raise ValueError("not the state of blocks")
        ends = packed["lengths"].cumsum()
        pairs = [*zip(packed["keys"].tolist(), packed["counts"].tolist(), strict=True)]
        *recent, opened = (dict(pairs[end - n : end]) for n, end in zip(packed["lengths"], ends, strict=True))
        self.size = int(packed["size"][0])
        self._fifths, self._sum, self._open = packed["fifths"].copy(), packed["sum"].copy(), opened
        self._recent = deque(recent)
        self._counts = {}
        for block in recent:
            for key, count in block.items():
                self._counts[key] = self._counts.get(key, 0) + count
        self._typical = self._median_count()


def _is_valid(packed: Mapping[str, NDArray[Any]], variables: int) -> bool:
    """Return whether arrays are a state of blocks with so many variables."""
    forms = {"keys": "u8", "counts": "i8", "lengths": "i8", "size": "i8", "fifths": "f8", "sum": "f8"}
    if {*packed} != {*forms} or any(packed[name].dtype != np.dtype(form) for name, form in forms.items()):
        return False
    keys, counts, lengths, size, fifths = (packed[name] for name in ("keys", "counts", "lengths", "size", "fifths"))
    if not (
        keys.ndim == lengths.ndim == 1
        and size.shape == (1,)
        and MIN_IN_BLOCK <= size[0] <= MAX_IN_BLOCK
        and 0 < len(lengths) <= _REMEMBERED // MIN_IN_BLOCK + 2
        and (lengths[:-1] >= MIN_IN_BLOCK).all()
        and (lengths[:-1] <= MAX_IN_BLOCK).all()
        and 0 <= lengths[-1] < size[0]
        and lengths.sum() == len(keys)  # bounded by the checks above, so that the sum does not wrap around
        and (len(lengths) <= 2 or lengths[:-1].sum() <= _REMEMBERED)
        and counts.shape == keys.shape
        and ((counts > 0) & (counts <= _MAX_COUNT)).all()
        and fifths.shape[1:] == packed["sum"].shape == (variables,)
    ):
        return False
    ends = size[0] * np.arange(FIFTHS) // FIFTHS
    done = int((ends[1:] <= lengths[-1]).sum())
    sizes = np.append(np.diff(ends[: done + 1]), lengths[-1] - ends[done])  # queries of each part
    sums = np.concatenate([fifths, packed["sum"][None]])
    return bool(
        len(fifths) == done
        and ((sums >= -ROUNDING) & (sums <= sizes[:, None] + ROUNDING)).all()
        and all(len(np.unique(block)) == len(block) for block in np.split(keys, np.cumsum(lengths)[:-1]))
    )


def autocorrelation_time(series: Float64) -> float:
    """Return the integrated autocorrelation time of a series in its steps, at least 1.

    It is summed over lags by Geyer's initial positive sequence ("Practical Markov chain Monte Carlo", Statistical
    Science 7, 1992). `series` is (n, V) float64; the V variables are pooled.
    """
    centred = series - series.mean(axis=0)
    variance = float((centred**2).sum())
    if variance == 0:
        return 1.0
    n, time = len(series), -1.0
    for lag in range(0, n // 4, 2):
        pair = sum(float((centred[: n - k] * centred[k:]).sum()) for k in (lag, lag + 1)) / variance
        if pair <= 0:
            break
        time += 2 * pair
    return max(1.0, time)


class BlockSize:
    """Chooses the size of the next block, from V means of the traffic before it."""

    def __init__(self, variables: int) -> None:
        self._steps: deque[Float64] = deque(maxlen=_MAX_STEPS)
        self._sum, self._count = np.zeros(variables), 0

    def observe(self, mean: Float64, queries: int) -> None:
        """Add the mean, (V,) float64, of further distinct queries."""
        self._sum = self._sum + mean * queries
        self._count += queries
        # A fifth of a long block is several steps with one mean: steps have the same length for any block size.
        while self._count >= _STEP:
            self._steps.append(self._sum / self._count)
            self._sum = self._sum * ((self._count - _STEP) / self._count)
            self._count -= _STEP

    @property
    def size(self) -> int:
        """Distinct queries in the next block, a multiple of BLOCK."""
        if len(self._steps) < _MIN_STEPS:
            return BLOCK
        queries = 2 * _STEP * autocorrelation_time(np.array(self._steps))
        return int(np.clip(BLOCK * np.ceil(queries / BLOCK), BLOCK, _LARGEST))

    def pack(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays, for other processes; `restore` reads it."""
        return {"steps": np.array(self._steps).reshape(-1, len(self._sum)), "rest": np.append(self._sum, self._count)}

    def restore(self, packed: Mapping[str, NDArray[Any]]) -> None:
        """Take over a state from `pack`; raises ValueError if it is not one; the block size is then unchanged."""
        variables = len(self._sum)
        if {*packed} != {"steps", "rest"} or any(
            array.dtype != np.float64 or not np.isfinite(array).all() for array in packed.values()
        ):
            raise ValueError("not the state of a block size")
        steps, remainder = packed["steps"], packed["rest"]
        if (
            steps.shape[1:] != (variables,)
            or len(steps) > _MAX_STEPS
            or remainder.shape != (variables + 1,)
            or not 0 <= remainder[-1] < _STEP
            or remainder[-1] % 1
            or not ((steps >= -ROUNDING) & (steps <= 1 + ROUNDING)).all()
            or not ((remainder >= -ROUNDING) & (remainder <= remainder[-1] + ROUNDING)).all()
        ):
            raise ValueError("not the state of a block size")
        self._steps = deque(steps[-_MAX_STEPS:].copy(), maxlen=_MAX_STEPS)
        self._sum, self._count = remainder[:-1].copy(), int(remainder[-1])
