"""Divides queries into parts, by query or by whole documents: holdout, roles in a calibration, and folds.

Every division documents the generator it draws from; docs/calibration.md has the order of the draws.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from taugate.evidence.clusters import ClusterIds, SamplingUnits
from taugate.evidence.rules import ThresholdRule

Positions = NDArray[np.int64]
Fold = tuple[Positions, Positions]  # queries of the remaining folds, queries of this fold

# Fewer queries cannot fit a model of 16 numbers, and the remaining ones could not certify a loss of 5 %.
MIN_CALIBRATING = 30
# Share of the calibration queries that fit. Certification gets most queries, because no model can make up for missing
# evidence; other shares were measured (benchmarks/decisions.md, "Relevance and policies").
FIT_SHARE = 0.25
CLUSTER_FOLDS = 5


def held_out(queries: int, holdout: float) -> int:
    """Return the number of held-out queries, round(h·n), for a holdout h in [0, 1)."""
    return round(holdout * queries)


class DrawSettings(Protocol):
    """The settings of a calibration that draw its queries and bootstraps."""

    @property
    def rule(self) -> ThresholdRule:
        """How the threshold is chosen."""
        ...

    @property
    def holdout(self) -> float:
        """Share of queries held out."""
        ...

    @property
    def bootstraps(self) -> int:
        """m, the number of bootstraps."""
        ...

    @property
    def sample_size(self) -> int:
        """l, the number of queries of a bootstrap."""
        ...

    @property
    def seed(self) -> int:
        """Seed of all draws."""
        ...


@dataclass(frozen=True)
class HoldoutSplit:
    """Division of n answerable queries into calibration and held-out queries."""

    calibration: Positions  # positions in file order, ascending
    heldout: Positions  # positions in file order, ascending; empty if h = 0. No query is in both parts.

    @classmethod
    def draw(cls, rng: np.random.Generator, units: SamplingUnits, settings: DrawSettings) -> Self:
        """Divide by document if that is the unit and the rule divides by document, else by query.

        `rng` is the generator of the draws that docs/calibration.md lists, before its first draw.
        """
        if not settings.rule.divides_by_document or units.unit == "query":
            return cls.by_query(rng, len(units.clusters), settings.holdout)
        return cls.by_document(rng, units.clusters, settings.holdout)

    @classmethod
    def by_query(cls, rng: np.random.Generator, queries: int, holdout: float) -> Self:
        """Hold out the last round(h·n) queries of a permutation; nothing is drawn if h = 0.

        n is `queries`, and h in [0, 1) is `holdout`.
        """
        if holdout == 0:
            return cls(np.arange(queries), np.arange(0))
        kept = queries - held_out(queries, holdout)
        order = rng.permutation(queries)
        return cls(np.sort(order[:kept]), np.sort(order[kept:]))

    @classmethod
    def by_document(cls, rng: np.random.Generator, cluster_ids: ClusterIds, holdout: float) -> Self:
        """Hold out whole clusters, from the end of a permutation, until round(h·n) queries are held out.

        At least one cluster is not held out. `cluster_ids` are (n,) clusters 0, 1, … by their first query; h in [0, 1)
        is `holdout`.
        """
        if holdout == 0:
            return cls(np.arange(len(cluster_ids)), np.arange(0))
        order = rng.permutation(int(cluster_ids.max()) + 1)
        out = np.isin(cluster_ids, _leading(order[:0:-1], cluster_ids, held_out(len(cluster_ids), holdout)))
        return cls(np.flatnonzero(~out), np.flatnonzero(out))


@dataclass(frozen=True)
class QueryRoles:
    """Calibration queries that fit a model, and those that do not and can certify its cuts."""

    fit: Positions  # positions among the answerable queries, ascending
    not_fitting: Positions  # positions among the answerable queries, ascending; none of them is in `fit`
    # (len(fit),) cluster of each query in `fit`; a cluster is a single query if queries are the unit.
    clusters: ClusterIds

    @classmethod
    def assign(cls, calibration: Positions, units: SamplingUnits, seed: int) -> Self | None:
        """Draw the roles; None with too few queries, or so few documents that a role has no query."""
        if len(calibration) < MIN_CALIBRATING:
            return None
        roles = cls.draw(calibration, units, seed)
        return roles if len(roles.fit) and len(roles.not_fitting) else None

    @classmethod
    def draw(cls, calibration: Positions, units: SamplingUnits, seed: int) -> Self:
        """Partition the calibration queries at random.

        The separate generator `numpy.random.default_rng([seed, 1])` leaves the draws of docs/calibration.md unchanged.
        The first units of a permutation with 25 % of the queries fit.
        """
        cluster_ids = units.clusters[calibration] if units.unit == "document" else np.arange(len(calibration))
        cluster_ids = np.unique(cluster_ids, return_inverse=True)[1]
        order = np.random.default_rng([seed, 1]).permutation(int(cluster_ids.max()) + 1)
        fits = np.isin(cluster_ids, _leading(order, cluster_ids, round(FIT_SHARE * len(calibration))))
        return cls(calibration[fits], calibration[~fits], cluster_ids[fits])


def cluster_folds(cluster_ids: ClusterIds) -> Iterator[Fold]:
    """Yield five folds of whole clusters: every fifth cluster, by its number, is in the same fold.

    `cluster_ids` is (q,) cluster of each query, numbered at random, so that every fifth cluster is a random sample.
    """
    for fold in range(CLUSTER_FOLDS):
        inside = cluster_ids % CLUSTER_FOLDS == fold
        yield np.flatnonzero(~inside), np.flatnonzero(inside)


def random_folds(queries: int, folds: int, rng: np.random.Generator) -> Iterator[Fold]:
    """Yield the folds of a random partition of `queries` queries, drawn by `rng`.

    Raises ValueError if there are fewer queries than folds.
    """
    if queries < folds:
        raise ValueError(f"cannot divide {queries} queries into {folds} folds")
    order = rng.permutation(queries)
    for number in range(folds):
        yield np.sort(order[np.arange(queries) % folds != number]), np.sort(order[number::folds])


def _leading(order: NDArray[np.int64], cluster_ids: ClusterIds, queries: int) -> NDArray[np.int64]:
    """Return the first clusters of `order` that together have at least this many queries."""
    sizes = np.bincount(cluster_ids)[order]
    return order[: int(np.searchsorted(np.cumsum(sizes), queries, side="left")) + 1] if queries else order[:0]
