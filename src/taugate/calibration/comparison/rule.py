"""The language of promotion rules: "accuracy not lower and kept share not higher by more than 0.05"."""

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
    """One number of each query, in 0…1.

    Attributes:
        values: (n,) float64.
        query: (n,) uint64, which query it is of.
        labels: (n,) clusters of queries that share a document.
    """

    values: NDArray[np.float64]
    query: NDArray[np.uint64]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)


QuantityReader = Callable[[Outcomes, int], QuantitySample]


def _answerable(value: Callable[[Outcomes, int], NDArray[np.generic]]) -> QuantityReader:
    return lambda each, k: QuantitySample(value(each, k).astype(np.float64), each.query, each.cluster)


def _unanswerable_empty(each: Outcomes, k: int) -> QuantitySample:
    """Say of each unanswerable query whether it got nothing.

    no document answers them, so that each is a draw of its own.
    """
    empty = (each.unanswerable_kept == 0).astype(np.float64)
    return QuantitySample(empty, each.unanswerable, np.arange(len(empty)))


# Without more words accuracy and NDCG are those of what users get, at τ. The second argument is K.
QUANTITIES: dict[str, QuantityReader] = {
    "accuracy": _answerable(lambda each, k: each.hit_kept),
    "NDCG": _answerable(lambda each, k: each.ndcg_kept),
    "kept share": _answerable(lambda each, k: each.kept / k),
    "answerable empty": _answerable(lambda each, k: each.kept == 0),
    "unanswerable empty": _unanswerable_empty,
    "accuracy@K": _answerable(lambda each, k: each.hit),
    "NDCG@K": _answerable(lambda each, k: each.ndcg),
}
# As the rows of `taugate release diff` have it.
_ALIASES = {"accuracy@K at τ": "accuracy", "NDCG@K at τ": "NDCG", "results kept": "kept share"}
_NAMES = {name.casefold(): name for name in QUANTITIES} | {name.casefold(): of for name, of in _ALIASES.items()}


def quantity(name: str) -> str | None:
    """Find the quantity of a name, whatever its case; None where there is none of that name."""
    return _NAMES.get(name.casefold())


# What a difference may be where a clause does not say: one query in a hundred, which is what an intended cut may cost
# where nobody says otherwise.
MARGIN = MAX_LOSS
_LEAST = 1e-6  # to show less takes more than a million queries
_NOT, _MORE = "not", "by more than"
_CLAUSE = re.compile(rf"(?P<what>.*?)\s{_NOT}\s(?P<way>\S+)(?:\s(?P<rest>.*))?", re.IGNORECASE)
_EXAMPLES = '"accuracy not lower" or "kept share not higher"'
_KNOWN = ", ".join(QUANTITIES)


@dataclass(frozen=True)
class Clause:
    """A quantity of the new release is not lower, or not higher, than the current one's by more than a margin.

    Attributes:
        quantity: Its name.
        way: "lower" or "higher", what it must not be.
        margin: None where the rule names none: then MARGIN, or the least that the queries can show (docs/promotion.md).
    """

    quantity: str
    way: Literal["lower", "higher"]
    margin: float | None = None

    def __str__(self) -> str:
        return f"{self.quantity} not {self.way} by more than {MARGIN if self.margin is None else self.margin:g}"


@dataclass(frozen=True)
class PromotionRule:
    """A promotion rule.

    Attributes:
        clauses: All of them have to hold.
    """

    clauses: tuple[Clause, ...]

    @classmethod
    def parse(cls, text: str, option: str) -> Self:
        """Read a rule.

        Args:
            text: Clauses with "and" between.
            option: Name of the option, for the message.

        Raises:
            InputError: , which names the option and the word that cannot be read.
        """
        try:
            parts = re.split(r"\s*\band\b\s*", " ".join(text.split()), flags=re.IGNORECASE)
            return cls(tuple(_clause(part) for part in parts))
        except ValueError as error:
            raise InputError(f'{option} "{_shown(text)}": {error}') from error

    def __str__(self) -> str:
        """Write the rule as it is recorded: every margin said."""
        return " and ".join(map(str, self.clauses))


def _clause(text: str) -> Clause:
    """Read one clause; raises ValueError with what is wrong, and what would be right."""
    found = _CLAUSE.fullmatch(text)
    if not text:
        raise ValueError(f'a clause is missing; give one such as {_EXAMPLES}, with "and" between two')
    if found is None:
        raise ValueError(f'"{_shown(text)}" is not a clause; give one such as {_EXAMPLES}')
    what, way, rest = quantity(found["what"]), found["way"].casefold(), found["rest"]
    if what is None:
        raise ValueError(f'"{_shown(found["what"])}" is not a quantity; there are {_KNOWN}')
    if way not in ("lower", "higher"):
        raise ValueError(f'"{_shown(found["way"])}" after "not"; give "not lower" or "not higher"')
    return Clause(what, way, None if rest is None else _margin(rest))  # type: ignore[arg-type] # one of the two


def _margin(text: str) -> float:
    words, _, number = text.rpartition(" ")
    if words.casefold() != _MORE:
        raise ValueError(f'"{_shown(text)}" after the clause; give "{_MORE} {MARGIN:g}", or "and" before another')
    try:
        margin = float(number)
    except ValueError:
        margin = math.nan
    if not _LEAST <= margin < 1:
        raise ValueError(f'"{_shown(number)}" is not a margin; give {_LEAST:g} or more and below 1, such as {MARGIN:g}')
    return margin


def _shown(text: str) -> str:
    """A message is one line, and a terminal obeys what is not printable."""
    words = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "?" for letter in words)[:100]
