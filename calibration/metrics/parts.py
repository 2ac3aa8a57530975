"""Three disjoint parts of the calibration queries: one fits the model, one more helps to choose, the rest certifies.

Where queries share documents all queries of a document are in one part: a model that has seen a document says more of
it than of others.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.bootstrap import leading
from taugate.calibration.metrics.clusters import Units

# Fewer queries hold no model of 16 numbers, and no choice: what is left to certify could not certify a loss of 5 %.
FEWEST_QUERIES = 30
# To fit and to choose. Certification takes most, as what it lacks no model makes good; other shares were measured
# (docs/benchmarks/calibration.md, "Three parts of the calibration queries").
SHARES = (0.25, 0.05)


@dataclass(frozen=True)
class Parts:
    """Positions among the answerable queries, each array ascending; no query is in two of them.

    labels: of each query that fits, equal for those that share a document where documents are the unit.
    """

    fit: NDArray[np.int64]
    choose: NDArray[np.int64]
    certify: NDArray[np.int64]
    labels: NDArray[np.int64]

    @property
    def rest(self) -> NDArray[np.int64]:
        """Those that do not fit, ascending."""
        return np.sort(np.concatenate([self.choose, self.certify]))

    @classmethod
    def asked(cls, calibration: NDArray[np.int64], units: Units, seed: int) -> Self | None:
        """None with too few queries, or where they are about so few documents that a part has none."""
        if len(calibration) < FEWEST_QUERIES:
            return None
        parts = cls.of(calibration, units, seed)
        return parts if all(len(part) for part in (parts.fit, parts.choose, parts.certify)) else None

    @classmethod
    def of(cls, calibration: NDArray[np.int64], units: Units, seed: int, shares: tuple[float, float] = SHARES) -> Self:
        """A random partition of the calibration queries; units: of all answerable queries.

        By a generator of its own, `numpy.random.default_rng([seed, 1])`, so that the draws of docs/calibration.md stay
        as they are: the first units of a permutation that have 25 % of the queries fit, the next with 5 % help to
        choose, the others certify.
        """
        labels = units.labels[calibration] if units.unit == "document" else np.arange(len(calibration))
        labels = np.unique(labels, return_inverse=True)[1]
        order = np.random.default_rng([seed, 1]).permutation(int(labels.max()) + 1)
        size = len(calibration)
        fit = leading(order, labels, round(shares[0] * size))
        choose = leading(order[len(fit) :], labels, round(shares[1] * size))
        fits, chooses = np.isin(labels, fit), np.isin(labels, choose)
        return cls(calibration[fits], calibration[chooses], calibration[~fits & ~chooses], labels[fits])
