"""How queries are divided: held out or not, by their role in a calibration, and into folds; by whole documents or not.

Every division says which generator it draws from; docs/calibration.md has the order of the draws.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.clusters import Labels, SamplingUnits
from taugate.calibration.settings.settings import CalibrationSettings

Positions = NDArray[np.int64]
Fold = tuple[Positions, Positions]  # the queries of the other folds, and those of this one

# Fewer queries hold no model of 16 numbers, and no choice: what is left to certify could not certify a loss of 5 %.
MIN_CALIBRATING = 30
# To fit and to choose. Certification takes most, as what it lacks no model makes good; other shares were measured
# (docs/benchmarks/calibration.md, "Three parts of the calibration queries").
SHARES = (0.25, 0.05)
CLUSTER_FOLDS = 5


def held_out(queries: int, holdout: float) -> int:
    """Return how many of `queries` are held out, round(h·n).

    Args:
        holdout: h, in [0, 1).
    """
    return round(holdout * queries)


@dataclass(frozen=True)
class HoldoutSplit:
    """Which of n answerable queries calibrate and which are held out.

    Attributes:
        calibration: Positions in file order, ascending, no query in both; heldout is empty where h = 0.
        heldout: Positions in file order, ascending, no query in both; heldout is empty where h = 0.
    """

    calibration: Positions
    heldout: Positions

    @classmethod
    def draw(cls, rng: np.random.Generator, units: SamplingUnits, settings: CalibrationSettings) -> Self:
        """Divide as the settings want it: by document where that is the unit, but not for the papers' rule.

        Args:
            rng: Generator of the draws that docs/calibration.md lists, before the first of them.
            units: Of all n queries.
            settings: Method and holdout.
        """
        if not settings.rule.divides_by_document or units.unit == "query":
            return cls.by_query(rng, len(units.labels), settings.holdout)
        return cls.by_document(rng, units.labels, settings.holdout)

    @classmethod
    def by_query(cls, rng: np.random.Generator, queries: int, holdout: float) -> Self:
        """Hold out the last round(h·n) queries of a permutation; nothing is drawn when h = 0.

        Args:
            rng: Generator.
            queries: n.
            holdout: h, in [0, 1).
        """
        if holdout == 0:
            return cls(np.arange(queries), np.arange(0))
        kept = queries - held_out(queries, holdout)
        order = rng.permutation(queries)
        return cls(np.sort(order[:kept]), np.sort(order[kept:]))

    @classmethod
    def by_document(cls, rng: np.random.Generator, labels: Labels, holdout: float) -> Self:
        """Hold out whole clusters, from the last of a permutation on, until round(h·n) queries are; one always stays.

        Args:
            rng: Generator.
            labels: (n,) cluster of each query, 0, 1, … by its first query.
            holdout: h, in [0, 1).
        """
        if holdout == 0:
            return cls(np.arange(len(labels)), np.arange(0))
        order = rng.permutation(int(labels.max()) + 1)
        out = np.isin(labels, _leading(order[:0:-1], labels, held_out(len(labels), holdout)))
        return cls(np.flatnonzero(~out), np.flatnonzero(out))


@dataclass(frozen=True)
class QueryRoles:
    """Which calibration queries fit a model, help to choose a policy, and certify; no query has two roles.

    Attributes:
        fit: Positions among the answerable queries, ascending.
        choose: Positions among the answerable queries, ascending.
        certify: Positions among the answerable queries, ascending.
        labels: (len(fit),) of each query that fits, equal for those that share a document where documents are the unit.
    """

    fit: Positions
    choose: Positions
    certify: Positions
    labels: Labels

    @property
    def rest(self) -> Positions:
        """Positions of the queries that do not fit, ascending."""
        return np.sort(np.concatenate([self.choose, self.certify]))

    @classmethod
    def assign(cls, calibration: Positions, units: SamplingUnits, seed: int) -> Self | None:
        """Draw the roles, None with too few queries or where they are about so few documents that a role has none.

        Args:
            calibration: Positions of the calibration queries.
            units: Of all answerable queries.
            seed: Of the calibration.
        """
        if len(calibration) < MIN_CALIBRATING:
            return None
        roles = cls.draw(calibration, units, seed)
        return roles if all(len(part) for part in (roles.fit, roles.choose, roles.certify)) else None

    @classmethod
    def draw(
        cls, calibration: Positions, units: SamplingUnits, seed: int, shares: tuple[float, float] = SHARES
    ) -> Self:
        """Partition the calibration queries at random.

        By a generator of its own, `numpy.random.default_rng([seed, 1])`, so that the draws of docs/calibration.md stay
        as they are: the first units of a permutation that have 25 % of the queries fit, the next with 5 % help to
        choose, the others certify.

        Args:
            calibration: Positions of the calibration queries.
            units: Of all answerable queries.
            seed: Of the calibration.
            shares: Of the queries, to fit and to choose.
        """
        labels = units.labels[calibration] if units.unit == "document" else np.arange(len(calibration))
        labels = np.unique(labels, return_inverse=True)[1]
        order = np.random.default_rng([seed, 1]).permutation(int(labels.max()) + 1)
        size = len(calibration)
        fit = _leading(order, labels, round(shares[0] * size))
        choose = _leading(order[len(fit) :], labels, round(shares[1] * size))
        fits, chooses = np.isin(labels, fit), np.isin(labels, choose)
        return cls(calibration[fits], calibration[chooses], calibration[~fits & ~chooses], labels[fits])


def cluster_folds(labels: Labels) -> Iterator[Fold]:
    """Yield five folds of whole clusters: every fifth cluster, by its number, is in the same fold.

    Args:
        labels: (q,) cluster of each query, numbered at random, so that every fifth is as good as any.
    """
    for fold in range(CLUSTER_FOLDS):
        inside = labels % CLUSTER_FOLDS == fold
        yield np.flatnonzero(~inside), np.flatnonzero(inside)


def random_folds(queries: int, folds: int, rng: np.random.Generator) -> Iterator[Fold]:
    """Yield the folds of a random partition of `queries` queries, drawn by `rng`.

    Raises:
        ValueError: Where there are fewer queries than folds.
    """
    if queries < folds:
        raise ValueError(f"{queries} queries make no {folds} folds")
    order = rng.permutation(queries)
    for number in range(folds):
        yield np.sort(order[np.arange(queries) % folds != number]), np.sort(order[number::folds])


def _leading(order: NDArray[np.int64], labels: Labels, queries: int) -> NDArray[np.int64]:
    """Return the first clusters of `order` that have so many of the queries together, or more; none for no queries."""
    sizes = np.bincount(labels)[order]
    return order[: int(np.searchsorted(np.cumsum(sizes), queries, side="left")) + 1] if queries else order[:0]
