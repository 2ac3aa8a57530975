"""E-detectors: numbers that grow while the means of blocks are beyond their bounds, the evidence of an alarm.

For each bound and each stake λ there is one, M ← max(M, 1) · L, where L is 1 plus λ times how far a mean is beyond the
bound; while the means are within, L is at most 1 on average (Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric
framework for sequential change detection", 2023; docs/drift.md).
"""

import numpy as np
from numpy.typing import NDArray

from taugate.drift.observations import Float64

# λ as a share of the largest one that keeps L positive. The mean of a block varies little, so the boldest bet is best
# against a clear shift; the cautious ones are for shifts that only some of the blocks show.
_STAKES = np.array([1 / 8, 1 / 2, 0.95])
_MIN_PROBABILITY = 1e-12  # so that a logarithm is finite


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

        Exact for variables of 0 and 1, whose sum over a block is binomial; other variables vary less.

        Args:
            means: (V,) float64, the true means.
            queries: Queries in a block.
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
