"""Promotion rules: how much worse than the current release a new one may be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError
from taugate.evidence.rules import MAX_LOSS
from taugate.release.queries import Outcomes


@dataclass(frozen=True)
class QuantitySample:
    """One number per query, in 0…1."""

    values: NDArray[np.float64]  # (n,) float64
    query: NDArray[np.uint64]  # (n,) uint64, digest of the query's text
    clusters: NDArray[np.int64]  # (n,) int64; queries that share a document have the same number

    def __len__(self) -> int:
        return len(self.values)


QuantityReader = Callable[[Outcomes, int], QuantitySample]


def _answerable(value: Callable[[Outcomes, int], NDArray[np.generic]]) -> QuantityReader:
    return lambda outcomes, k: QuantitySample(value(outcomes, k).astype(np.float64), outcomes.query, outcomes.cluster)


# Plain accuracy is measured at τ, on the results that users get. The second argument is K.
QUANTITIES: dict[str, QuantityReader] = {
    "accuracy": _answerable(lambda outcomes, k: outcomes.hit_kept),
    "kept share": _answerable(lambda outcomes, k: outcomes.kept / k),
    "accuracy@K": _answerable(lambda outcomes, k: outcomes.hit),
}
# Margin of a clause that names none: one query in a hundred, the default loss of an intended cut.
MARGIN = MAX_LOSS
_MIN_MARGIN = 1e-6  # showing a smaller difference takes more than a million queries


@dataclass(frozen=True)
class Clause:
    """A quantity of the new release must not be lower (or higher) than the current one's by more than a margin."""

    quantity: str
    way: Literal["lower", "higher"]
    # None for the default: MARGIN, or the smallest that the queries can show (docs/releases.md)
    margin: float | None = None

    def __str__(self) -> str:
        return f"{self.quantity} not {self.way} by more than {MARGIN if self.margin is None else self.margin:g}"


@dataclass(frozen=True)
class PromotionRule:
    """A promotion rule; it holds if all its clauses hold."""

    clauses: tuple[Clause, ...]

    @classmethod
    def from_limits(
        cls,
        *,
        max_accuracy_drop: float | Literal["auto"] | None = None,
        max_kept_increase: float | Literal["auto"] | None = None,
    ) -> Self:
        """Build the rule from the limits that `--max-accuracy-drop` and `--max-kept-increase` set.

        "auto" stands for the default margin, which widens if the queries cannot show less; None for no limit.

        Args:
            max_kept_increase: How far the share of the K results that is kept may rise.
        """
        limits: list[tuple[str, float | Literal["auto"] | None, Clause]] = [
            ("--max-accuracy-drop", max_accuracy_drop, Clause("accuracy", "lower")),
            ("--max-kept-increase", max_kept_increase, Clause("kept share", "higher")),
        ]
        clauses = []
        for option, limit, clause in limits:
            if limit is None:
                continue
            if limit == "auto":
                clauses.append(clause)
                continue
            if not _MIN_MARGIN <= limit < 1:
                raise InputError(
                    f"{option} {limit:g}: give a share of {_MIN_MARGIN:g} or more and below 1, such as 0.01"
                )
            clauses.append(Clause(clause.quantity, clause.way, limit))
        if not clauses:
            raise ValueError("a promotion rule needs at least one limit")
        return cls(tuple(clauses))

    def __str__(self) -> str:
        """Return the rule as it is recorded, with every margin."""
        return " and ".join(map(str, self.clauses))
