"""Evidence that means have left their bounds, valid at any time and however often it is looked at.

An e-detector (Shin, Ramdas and Rinaldo, E-detectors: a nonparametric framework for sequential change detection, 2023,
§2.2) of the CUSUM kind, which begins anew whenever what came so far speaks against a change:

    M_t = max(M_{t−1}, 1) · L_t,    L_t = (1 − x_t) · (1 − a) / (1 − b) + x_t · a / b.

The bets L_t need nothing of x_t but that it lies in 0…1: while its mean, whatever came before, is not beyond the
boundary b, on the side of which the alternative a lies, E[L_t] ≤ 1. While that is so, the expected time until M reaches
c is at least c, and until one of m such detectors reaches it at least c / m (their mean is an e-detector as well).
"""

import numpy as np
from numpy.typing import NDArray

from retrieval.drift.effect import Float64, shifted

# Beyond the boundary, in Cohen's h: from what is just worth knowing to a wholly different distribution. The best of
# them is within a factor of √2 of the truth; evidence then grows by 2r − r² of what the truth itself would give, r the
# factor or its inverse (for a normal mean), .83 at least.
_ALTERNATIVES = np.array([0.1, 0.2, 0.4, 0.8, 1.6])
_LEAST = 1e-3  # of a share that is bet on: no single query takes all evidence away


class Evidence:
    """Of C variables, each with a boundary that its mean should not be beyond.

    boundaries: (C,) in 0…1, both excluded; above: (C,), whether the mean should not be above it, or not below.
    """

    def __init__(self, boundaries: Float64, above: NDArray[np.bool_]) -> None:
        bounds = boundaries[:, None]
        upper = np.maximum(np.minimum(shifted(bounds, _ALTERNATIVES), 1 - _LEAST), bounds)
        lower = np.minimum(np.maximum(shifted(bounds, -_ALTERNATIVES), _LEAST), bounds)
        alternatives = np.where(above[:, None], upper, lower)
        self._zero = (1 - alternatives) / (1 - bounds)
        self._slope = alternatives / bounds - self._zero
        self._log_zero = np.log(self._zero)
        self._log_slope = np.log(alternatives / bounds) - self._log_zero
        self.restart()

    @property
    def detectors(self) -> int:
        """m: variables by alternatives."""
        return self._slope.size

    def restart(self) -> None:
        """Forget what was seen."""
        self._log = np.zeros(self._slope.shape)

    def update(self, values: Float64) -> Float64:
        """The logarithm of the largest M after each row, (n,); values: (n, C) in 0…1, as they came, n ≥ 1."""
        bets = self._bets(values[:, :, None])
        sums = np.cumsum(bets, axis=0) + np.maximum(self._log, 0)
        # A beginning anew takes away what the sum was then: the smallest so far, and 0 at the start.
        lowest = np.minimum.accumulate(np.concatenate([np.zeros((1, *self._log.shape)), sums[:-1]]), axis=0)
        logs = sums - np.minimum(lowest, 0)
        self._log = logs[-1]
        largest: Float64 = logs.max(axis=(1, 2))
        return largest

    def _bets(self, x: Float64) -> Float64:
        """Logarithms of L; of zeros and ones, as most variables are, known beforehand."""
        if ((x == 0) | (x == 1)).all():
            known: Float64 = self._log_zero + x * self._log_slope
            return known
        bets: Float64 = np.log(self._zero + x * self._slope)
        return bets
