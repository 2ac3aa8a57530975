"""Three disjoint parts of the calibration queries: one fits the model, one more helps to choose, the rest certifies."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

# Fewer queries hold no model of 16 numbers, and no choice: what is left to certify could not certify a loss of 5 %.
FEWEST_QUERIES = 30
# To fit and to choose. Certification takes most, as what it lacks no model makes good; other shares were measured
# (docs/benchmarks/calibration.md, "Three parts of the calibration queries").
SHARES = (0.35, 0.05)


@dataclass(frozen=True)
class Parts:
    """Positions among the answerable queries, each array ascending; no query is in two of them."""

    fit: NDArray[np.int64]
    choose: NDArray[np.int64]
    certify: NDArray[np.int64]

    @property
    def rest(self) -> NDArray[np.int64]:
        """Those that do not fit, ascending."""
        return np.sort(np.concatenate([self.choose, self.certify]))

    @classmethod
    def of(cls, calibration: NDArray[np.int64], seed: int, shares: tuple[float, float] = SHARES) -> Self:
        """A random partition of the calibration queries.

        By a generator of its own, `numpy.random.default_rng([seed, 1])`, so that the draws of docs/calibration.md stay
        as they are: the first 35 % of a permutation fit, the next 5 % help to choose, the others certify.
        """
        order = calibration[np.random.default_rng([seed, 1]).permutation(len(calibration))]
        first = round(shares[0] * len(order))
        second = first + round(shares[1] * len(order))
        return cls(np.sort(order[:first]), np.sort(order[first:second]), np.sort(order[second:]))
