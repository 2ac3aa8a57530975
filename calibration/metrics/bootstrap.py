"""Bootstraps by index: queries are searched once, a bootstrap only says how often each of them counts."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.clusters import Labels, Units, cluster_bootstrap
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.retrieval.release.evidence import Estimate, Interval

Rows = NDArray[np.int64]
_BY_DOCUMENT = 1000  # bootstraps: their 2.5th percentile is the 25th value


@dataclass(frozen=True)
class Draw:
    """Random choices for q queries.

    rows: (m, l) query positions; random_documents: (q,) document positions; units: what counts as one draw; seed: of
    the bootstraps by document.
    """

    rows: Rows
    random_documents: NDArray[np.int64]
    units: Units
    seed: int

    @classmethod
    def of(cls, rng: np.random.Generator, units: Units, documents: int, settings: CalibrationSettings) -> Self:
        """In the order of docs/calibration.md: the bootstrap rows first, then a random document for each query."""
        queries = len(units.labels)
        rows = rng.integers(0, queries, size=(settings.bootstraps, settings.sample_size))
        return cls(rows, rng.integers(0, documents, size=queries), units, settings.seed)

    def estimate(self, per_query: NDArray[np.float64]) -> Estimate:
        """A metric, known for each query, with its 95 % intervals, by document where that is the unit; (q,)."""
        found = bootstrapped(per_query, self.rows)
        return Estimate(**found.model_dump(), by_document=self.by_document(per_query))

    def by_document(self, per_query: NDArray[np.float64]) -> Interval | None:
        """Mean of a metric, (q,), with whole documents drawn, by a generator of its own; None where queries are."""
        if self.units.unit == "query":
            return None
        rng = np.random.default_rng([self.seed, 6])
        return cluster_bootstrap(per_query, np.unique(self.units.labels, return_inverse=True)[1], rng, _BY_DOCUMENT)


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

    @classmethod
    def asked(cls, rng: np.random.Generator, units: Units, settings: CalibrationSettings) -> Self:
        """As the settings want it; units: of all n queries. The papers' rule is about queries, whatever they share."""
        if settings.rule.method == "bootstrap" or units.unit == "query":
            return cls.of(rng, len(units.labels), settings.holdout)
        return cls.by_document(rng, units.labels, settings.holdout)

    @classmethod
    def by_document(cls, rng: np.random.Generator, labels: Labels, holdout: float) -> Self:
        """Whole clusters, from the last of a permutation on, until round(h·n) queries are held out; one always stays.

        labels: (n,) cluster of each query, 0, 1, … by its first query.
        """
        if holdout == 0:
            return cls(np.arange(len(labels)), np.arange(0))
        order = rng.permutation(int(labels.max()) + 1)
        out = np.isin(labels, leading(order[:0:-1], labels, round(holdout * len(labels))))
        return cls(np.flatnonzero(~out), np.flatnonzero(out))


def leading(order: NDArray[np.int64], labels: Labels, queries: int) -> NDArray[np.int64]:
    """The first clusters of `order` that have so many of the queries together, or more; none for no queries."""
    sizes = np.bincount(labels)[order]
    return order[: int(np.searchsorted(np.cumsum(sizes), queries, side="left")) + 1] if queries else order[:0]


def bootstrapped(per_query: NDArray[np.float64], rows: Rows) -> Interval:
    """A metric, known for each query, with its 95 % interval. per_query: (q,); rows: (m, l)."""
    return Interval.of_bootstraps(per_query[rows].mean(axis=1))


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
