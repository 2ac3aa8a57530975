"""The earlier alarms: e-detectors that weigh single queries, as if queries were independent."""

from collections.abc import Callable

import numpy as np

from taugate.drift.observations import Float64, Observations, calibration_observations
from taugate.drift.signals import query_signals, shifted
from taugate.retrieval.release.query_arrays import Reference

_PERCENTILES = (5, 25, 50, 75, 95)
_ALTERNATIVES = np.array([0.1, 0.2, 0.4, 0.8, 1.6])
_EFFECT, _SELDOM, _QUIET, _ROWS = 0.1, 1e9, 1000, 8192
_QUANTILE = 3.39  # of the allowance for what a calibration may be off by


class PerQuery:
    """The four alarms of queries.

    Attributes:
        theta: θ of the calibration, for ROE.
    """

    def __init__(self, reference: Reference, theta: float) -> None:
        ranks = sorted({0, reference.top.shape[1] - 1})
        levels = np.percentile(reference.top[:, ranks], _PERCENTILES, axis=0).astype(np.float32)

        def top(seen: Observations) -> Float64:
            return (seen.top[:, None, ranks] <= levels).reshape(len(seen), -1).astype(np.float64)

        others = [signal.variables for signal in query_signals(reference, theta)[1:]]
        self._signals = [_Signal(variables, reference) for variables in (top, *others)]

    def alarms(self, seen: Observations) -> int:
        """Count how often any of the alarms begins."""
        parts = [seen.take(slice(start, start + _ROWS)) for start in range(0, len(seen), _ROWS)]
        return sum(signal.alarms(part) for part in parts for signal in self._signals)


class _Signal:
    def __init__(self, variables: Callable[[Observations], Float64], reference: Reference) -> None:
        self._variables = variables
        means = variables(calibration_observations(reference)).mean(axis=0)
        allowed = _EFFECT + _QUANTILE / np.sqrt(len(reference))
        below, above = shifted(means, -allowed), shifted(means, allowed)
        self._columns = np.concatenate([np.flatnonzero(below > 0), np.flatnonzero(above < 1)])
        bounds = np.concatenate([below[below > 0], above[above < 1]])[:, None]
        signs = np.where(np.arange(len(bounds)) < (below > 0).sum(), -1, 1)[:, None]
        alternatives = np.clip(shifted(bounds, signs * _ALTERNATIVES), 1e-3, 1 - 1e-3)
        self._zero = (1 - alternatives) / (1 - bounds)
        self._slope = alternatives / bounds - self._zero
        self._log_zero = np.log(self._zero)
        self._log_slope = np.log(alternatives / bounds) - self._log_zero
        self._log = np.zeros(alternatives.shape)
        self._threshold = np.log(_SELDOM * 5 * max(1, self._log.size))
        self._quiet = 0

    def alarms(self, seen: Observations) -> int:
        """Count how often the alarm begins; it ends after 1,000 queries without new evidence."""
        begun, values = 0, self._variables(seen)[:, self._columns, None]
        while len(values) and self._log.size:
            sums = np.cumsum(self._bets(values), axis=0) + np.maximum(self._log, 0)
            lowest = np.minimum.accumulate(np.concatenate([np.zeros((1, *self._log.shape)), sums[:-1]]), axis=0)
            logs = sums - np.minimum(lowest, 0)
            crossed = np.flatnonzero(logs.max(axis=(1, 2)) >= self._threshold)
            taken = int(crossed[0]) + 1 if len(crossed) else len(values)
            self._quiet = max(0, self._quiet - taken)
            if len(crossed):
                begun += self._quiet == 0
                self._quiet = _QUIET
            self._log = np.zeros_like(self._log) if len(crossed) else logs[-1]
            values = values[taken:]
        return begun

    def _bets(self, x: Float64) -> Float64:
        """Logarithms of what each query is worth; of zeros and ones, as most variables are, known beforehand."""
        if ((x == 0) | (x == 1)).all():
            known: Float64 = self._log_zero + x * self._log_slope
            return known
        found: Float64 = np.log(self._zero + x * self._slope)
        return found
