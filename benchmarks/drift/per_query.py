"""What alarms looked like before: the e-detector fed with each query by itself, as if queries were independent."""

import numpy as np

from retrieval.drift.effect import Float64, shifted
from retrieval.drift.observations import Observations
from retrieval.drift.reference import Reference

_PERCENTILES = (5, 25, 50, 75, 95)
_ALTERNATIVES = np.array([0.1, 0.2, 0.4, 0.8, 1.6])
_EFFECT, _SELDOM, _QUIET, _ROWS = 0.1, 1e9, 1000, 4096
_QUANTILE = 3.39  # of the allowance for what a calibration may be off by


class PerQuery:
    """One signal: the best and the last of the top-K against five percentiles of the calibration."""

    def __init__(self, reference: Reference) -> None:
        self._ranks = sorted({0, reference.top.shape[1] - 1})
        self._levels = np.percentile(reference.top[:, self._ranks], _PERCENTILES, axis=0).astype(np.float32)
        means = self._values(reference.observations).mean(axis=0)
        allowed = _EFFECT + _QUANTILE / np.sqrt(len(reference))
        low, high = shifted(means, -allowed)[:, None], shifted(means, allowed)[:, None]
        self._zero, self._slope = [], []
        for bound, ways in ((low, -_ALTERNATIVES), (high, _ALTERNATIVES)):
            alternatives = np.clip(shifted(bound, ways), 1e-3, 1 - 1e-3)
            self._zero.append(np.log((1 - alternatives) / (1 - bound)))
            self._slope.append(np.log(alternatives / bound) - self._zero[-1])
        self._log = np.zeros((2, *low.shape[:1], len(_ALTERNATIVES)))
        self._threshold = np.log(_SELDOM * 5 * self._log.size)
        self._quiet = 0

    def alarms(self, seen: Observations) -> int:
        """How often one begins; it ends after 1,000 queries without new evidence."""
        begun = 0
        for start in range(0, len(seen), _ROWS):
            values = self._values(seen.take(slice(start, start + _ROWS)))
            while len(values):
                bets = np.stack(
                    [z + values[:, :, None] * s for z, s in zip(self._zero, self._slope, strict=True)], axis=1
                )
                sums = np.cumsum(bets, axis=0) + np.maximum(self._log, 0)
                lowest = np.minimum.accumulate(np.concatenate([np.zeros((1, *self._log.shape)), sums[:-1]]), axis=0)
                logs = sums - np.minimum(lowest, 0)
                crossed = np.flatnonzero(logs.max(axis=(1, 2, 3)) >= self._threshold)
                taken = int(crossed[0]) + 1 if len(crossed) else len(values)
                self._quiet = max(0, self._quiet - taken)
                if len(crossed):
                    begun += self._quiet == 0
                    self._quiet = _QUIET
                self._log = np.zeros_like(self._log) if len(crossed) else logs[-1]
                values = values[taken:]
        return begun

    def _values(self, seen: Observations) -> Float64:
        return (seen.top[:, None, self._ranks] <= self._levels).reshape(len(seen), -1).astype(np.float64)
