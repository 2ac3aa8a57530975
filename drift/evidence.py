"""Evidence that a mean has left its bounds: valid at any time, however often it is looked at.

An e-detector (Shin, Ramdas and Rinaldo, E-detectors: a nonparametric framework for sequential change detection, 2023,
§2.2) of the CUSUM kind, which starts over whenever what it has seen speaks against a change:

    M_t = max(M_{t−1}, 1) · L_t,    L_t = 1 + λ (x_t − b)  above an upper bound b,  1 + λ (b − x_t)  below a lower one.

x_t is the mean of a block of queries. All that is asked of it is that it lies in 0…1 and that its expectation, given
everything before the block, is not beyond b: then E[L_t] ≤ 1, and within n blocks M reaches c with a probability of at
most n / c. The same holds of the mean of several M. docs/drift.md has the theorem and what it takes for granted.
"""

import numpy as np
from numpy.typing import NDArray

from taugate.drift.effect import Float64

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
