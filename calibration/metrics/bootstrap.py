"""Bootstraps by index: queries are searched once, a bootstrap only says how often each of them counts."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from calibration.settings import CalibrationSettings
from retrieval.release.interval import Interval

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Draw:
    """Random choices for q queries: `rows` (m, l) query positions, `random_documents` (q,) document positions."""

    rows: Rows
    random_documents: NDArray[np.int64]

    @classmethod
    def of(cls, rng: np.random.Generator, queries: int, documents: int, settings: CalibrationSettings) -> Self:
        """In the order of docs/calibration.md: the bootstrap rows first, then a random document for each query."""
        rows = rng.integers(0, queries, size=(settings.bootstraps, settings.sample_size))
        return cls(rows, rng.integers(0, documents, size=queries))


@dataclass(frozen=True)
class Split:
    """Which of n answerable queries calibrate and which are held out, as positions in file order."""

    calibration: NDArray[np.int64]
    heldout: NDArray[np.int64]

    @classmethod
    def of(cls, rng: np.random.Generator, queries: int, holdout: float) -> Self:
        """The last round(h·n) of a permutation are held out; nothing is drawn when h = 0 (docs/calibration.md)."""
        if holdout == 0:
            return cls(np.arange(queries), np.arange(0))
        kept = queries - round(holdout * queries)
        order = rng.permutation(queries)
        return cls(np.sort(order[:kept]), np.sort(order[kept:]))


def bootstrapped(per_query: NDArray[np.float64], rows: Rows) -> Interval:
    """A metric, known for each query, with its 95 % interval. per_query: (q,); rows: (m, l)."""
    return Interval.of_bootstraps(per_query[rows].mean(axis=1))
