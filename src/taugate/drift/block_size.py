"""The size of blocks that adapt to the traffic: long enough that bursts are averaged within a block."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.drift.blocks import ROUNDING
from taugate.drift.observations import Float64
from taugate.drift.rules import BLOCK

_STEP = 40  # queries averaged in one value of the series: a fifth of the smallest block
_MAX_STEPS = 500  # of the series: the last 20,000 queries
_MIN_STEPS = 50
_LARGEST = 16 * BLOCK  # a change that lasts longer than 1,600 queries is not a burst; a baseline is for that


def autocorrelation_time(series: Float64) -> float:
    """Return the integrated autocorrelation time of a series in its steps, at least 1.

    It is summed over lags by Geyer's initial positive sequence ("Practical Markov chain Monte Carlo", Statistical
    Science 7, 1992).

    Args:
        series: (n, V) float64; the V variables are pooled.
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
        """Take over a state from `pack`.

        Raises:
            ValueError: If it is not one; the block size is then unchanged.
        """
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
