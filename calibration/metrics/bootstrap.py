"""Bootstraps by index: queries are searched once, and a bootstrap only says how often each of them counts."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.clusters import SamplingUnits, cluster_bootstrap
from taugate.calibration.metrics.splits import HoldoutSplit, Positions
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.retrieval.release.evidence import Estimate, Interval

Rows = NDArray[np.int64]
_BY_DOCUMENT = 1000  # bootstraps: their 2.5th percentile is the 25th value


@dataclass(frozen=True)
class Resamples:
    """Random choices for q queries.

    rows: (m, l) query positions, 0…q − 1; random_documents: (q,) document positions; units: what counts as one draw
    among the q queries; seed: of the bootstraps by document.
    """

    rows: Rows
    random_documents: NDArray[np.int64]
    units: SamplingUnits
    seed: int

    @classmethod
    def draw(
        cls, rng: np.random.Generator, units: SamplingUnits, documents: int, settings: CalibrationSettings
    ) -> Self:
        """Draw the bootstrap rows first, then a random document for each query (docs/calibration.md).

        rng: generator; units: of the q queries; documents: N, of the corpus; settings: m, l and the seed.
        """
        queries = len(units.labels)
        rows = rng.integers(0, queries, size=(settings.bootstraps, settings.sample_size))
        return cls(rows, rng.integers(0, documents, size=queries), units, settings.seed)

    def estimate(self, per_query: NDArray[np.float64]) -> Estimate:
        """Estimate the mean of a metric, with 95 % intervals by query, and by document where that is the unit.

        per_query: (q,) float64.
        """
        found = bootstrapped(per_query, self.rows)
        return Estimate(**found.model_dump(), by_document=self.by_document(per_query))

    def by_document(self, per_query: NDArray[np.float64]) -> Interval | None:
        """Bootstrap the mean of a metric by whole documents; None where queries are the unit.

        Documents are drawn by a generator of their own, `numpy.random.default_rng([seed, 6])`.

        per_query: (q,) float64.
        """
        if self.units.unit == "query":
            return None
        rng = np.random.default_rng([self.seed, 6])
        return cluster_bootstrap(per_query, np.unique(self.units.labels, return_inverse=True)[1], rng, _BY_DOCUMENT)


@dataclass(frozen=True)
class QueryPart:
    """The queries that calibrate, or those held out.

    members: positions of its q queries among the answerable ones, ascending; resamples: the random choices for them.
    """

    members: Positions
    resamples: Resamples


@dataclass(frozen=True)
class DrawnQueries:
    """The random choices that docs/calibration.md lists, all made once and before anything is measured.

    units: what counts as one draw among all answerable queries; parts: "calibration" and, with a holdout, "heldout".
    """

    units: SamplingUnits
    parts: dict[str, QueryPart]

    @classmethod
    def draw(cls, units: SamplingUnits, documents: int, settings: CalibrationSettings) -> Self:
        """Draw the split, then the resamples of each part, from `numpy.random.default_rng(seed)`.

        units: of all answerable queries; documents: N, of the corpus; settings: of the calibration.
        """
        rng = np.random.default_rng(settings.seed)
        split = HoldoutSplit.draw(rng, units, settings)
        parts = {
            name: QueryPart(members, Resamples.draw(rng, units.take(members), documents, settings))
            for name, members in (("calibration", split.calibration), ("heldout", split.heldout))
            if len(members)
        }
        return cls(units, parts)


def bootstrapped(per_query: NDArray[np.float64], rows: Rows) -> Interval:
    """Return the mean of a metric over bootstraps, with its 95 % interval; per_query: (q,); rows: (m, l)."""
    return Interval.of_bootstraps(per_query[rows].mean(axis=1))
