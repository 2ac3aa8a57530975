"""Promotion rules: how much worse than the current release a new one may be.

A rule is built from limits (`--max-accuracy-drop`, `--max-kept-increase`) or read from a sentence such as
"accuracy not lower and kept share not higher by more than 0.05".
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.settings.rules import MAX_LOSS
from taugate.errors import InputError
from taugate.retrieval.release.query_arrays import Outcomes


@dataclass(frozen=True)
class QuantitySample:
    """One number per query, in 0…1.

    Attributes:
        values: (n,) float64.
        query: (n,) uint64, digest of the query's text.
        clusters: (n,) int64; queries that share a document have the same number.
    """

    values: NDArray[np.float64]
    query: NDArray[np.uint64]
    clusters: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)


QuantityReader = Callable[[Outcomes, int], QuantitySample]


def _answerable(value: Callable[[Outcomes, int], NDArray[np.generic]]) -> QuantityReader:
    return lambda outcomes, k: QuantitySample(value(outcomes, k).astype(np.float64), outcomes.query, outcomes.cluster)


def _unanswerable_empty(outcomes: Outcomes, k: int) -> QuantitySample:
    """Return 1 for each unanswerable query without results, else 0.

    No document answers these queries, so each is a cluster of its own.
    """
    empty = (outcomes.unanswerable_kept == 0).astype(np.float64)
    return QuantitySample(empty, outcomes.unanswerable, np.arange(len(empty)))


# Plain accuracy and NDCG are measured at τ, on the results that users get. The second argument is K.
QUANTITIES: dict[str, QuantityReader] = {
    "accuracy": _answerable(lambda outcomes, k: outcomes.hit_kept),
    "NDCG": _answerable(lambda outcomes, k: outcomes.ndcg_kept),
    "kept share": _answerable(lambda outcomes, k: outcomes.kept / k),
    "answerable empty": _answerable(lambda outcomes, k: outcomes.kept == 0),
    "unanswerable empty": _unanswerable_empty,
    "accuracy@K": _answerable(lambda outcomes, k: outcomes.hit),
    "NDCG@K": _answerable(lambda outcomes, k: outcomes.ndcg),
}
# The row names of `taugate release diff`.
_ALIASES = {"accuracy@K at τ": "accuracy", "NDCG@K at τ": "NDCG", "results kept": "kept share"}
_NAMES = {name.casefold(): name for name in QUANTITIES} | {alias.casefold(): name for alias, name in _ALIASES.items()}


def quantity(name: str) -> str | None:
    """Find a quantity by its name or alias, ignoring case; None if there is none."""
    return _NAMES.get(name.casefold())


# Margin of a clause that names none: one query in a hundred, the default loss of an intended cut.
MARGIN = MAX_LOSS
_MIN_MARGIN = 1e-6  # showing a smaller difference takes more than a million queries
_NOT, _MORE = "not", "by more than"
_CLAUSE = re.compile(rf"(?P<quantity>.*?)\s{_NOT}\s(?P<direction>\S+)(?:\s(?P<margin>.*))?", re.IGNORECASE)
_EXAMPLES = '"accuracy not lower" or "kept share not higher"'
_QUANTITY_NAMES = ", ".join(QUANTITIES)


@dataclass(frozen=True)
class Clause:
    """A quantity of the new release must not be lower (or higher) than the current one's by more than a margin.

    Attributes:
        quantity: A key of QUANTITIES.
        way: The direction that counts as worse.
        margin: None for the default: MARGIN, or the smallest that the queries can show (docs/promotion.md).
    """

    quantity: str
    way: Literal["lower", "higher"]
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
            max_accuracy_drop: How far accuracy at τ may fall.
            max_kept_increase: How far the share of the K results that is kept may rise.

        Raises:
            InputError: If a limit is out of bounds.
            ValueError: If neither limit is set.
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

    @classmethod
    def parse(cls, text: str, option: str) -> Self:
        """Read a rule from a sentence.

        Args:
            text: Clauses joined by "and".
            option: The option that the text comes from, named in the error message.

        Raises:
            InputError: If a clause cannot be read; the message quotes the word that is wrong.
        """
        try:
            parts = re.split(r"\s*\band\b\s*", " ".join(text.split()), flags=re.IGNORECASE)
            return cls(tuple(_clause(part) for part in parts))
        except ValueError as error:
            raise InputError(f'{option} "{_printable(text)}": {error}') from error

    def __str__(self) -> str:
        """Return the rule as it is recorded, with every margin."""
        return " and ".join(map(str, self.clauses))


def _clause(text: str) -> Clause:
    """Read one clause; a ValueError says what is wrong and what would be right."""
    match = _CLAUSE.fullmatch(text)
    if not text:
        raise ValueError(f'a clause is missing; give one such as {_EXAMPLES}, with "and" between two')
    if match is None:
        raise ValueError(f'"{_printable(text)}" is not a clause; give one such as {_EXAMPLES}')
    name, way, margin = quantity(match["quantity"]), match["direction"].casefold(), match["margin"]
    if name is None:
        raise ValueError(f'"{_printable(match["quantity"])}" is not a quantity; there are {_QUANTITY_NAMES}')
    if way not in ("lower", "higher"):
        raise ValueError(f'"{_printable(match["direction"])}" after "not"; give "not lower" or "not higher"')
    return Clause(name, way, None if margin is None else _margin(margin))  # type: ignore[arg-type] # one of the two


def _margin(text: str) -> float:
    words, _, number = text.rpartition(" ")
    if words.casefold() != _MORE:
        raise ValueError(f'"{_printable(text)}" after the clause; give "{_MORE} {MARGIN:g}", or "and" before another')
    try:
        margin = float(number)
    except ValueError:
        margin = math.nan
    if not _MIN_MARGIN <= margin < 1:
        raise ValueError(
            f'"{_printable(number)}" is not a margin; give {_MIN_MARGIN:g} or more and below 1, such as {MARGIN:g}'
        )
    return margin


def _printable(text: str) -> str:
    """Return the text as one line of printable characters, at most 100 of them, safe to show in a terminal."""
    words = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "?" for letter in words)[:100]
