"""What a filter asks of a document's metadata. Hashable, and equal where it asks the same, so that searches can share.

A value is compared within its kind: true is not 1, "1" is not 1, and 1 is 1.0.
"""

from dataclasses import dataclass
from typing import Self

Value = str | int | float | bool
Key = tuple[int, Value]  # the rank of its kind, and the value: two keys compare as numbers, as texts, or by kind

BOOLEANS, NUMBERS, TEXTS = range(3)
KINDS = ("booleans", "numbers", "texts")  # in messages


def key(value: Value) -> Key:
    """A value with its kind. Texts are ordered by code point; int and float compare exactly, however large."""
    if isinstance(value, bool):
        return BOOLEANS, value
    return TEXTS if isinstance(value, str) else NUMBERS, value


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field equals one of the values; `keys` are distinct and in order."""

    field: str
    keys: tuple[Key, ...]

    @classmethod
    def of(cls, field: str, *values: Value) -> Self:
        """From the values themselves."""
        return cls(field, tuple(sorted({key(value) for value in values})))


@dataclass(frozen=True, slots=True)
class Range:
    """The field is a number within all the bounds that are not None."""

    field: str
    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None


Condition = OneOf | Range
Filter = tuple[Condition, ...]  # all of them hold


def all_of(*conditions: Condition) -> Filter:
    """Conditions in the order of their fields' names, so that the same filter is always equal."""
    return tuple(sorted(conditions, key=lambda condition: condition.field))


def both(one: Filter, other: Filter) -> Filter:
    """A filter that is met where two are met. A field may have several conditions then, each of which has to hold.

    What another condition implies is left out: {"lang": "sv"} and {"lang": ["sv", "en"]} are {"lang": "sv"}.
    """
    if not one or not other:
        return one or other
    conditions = dict.fromkeys((*one, *other))  # each once
    return all_of(*(each for each in conditions if not any(_implies(better, each) for better in conditions)))


def _implies(one: Condition, other: Condition) -> bool:
    """Whether every document that meets the one meets the other, which is another condition."""
    if not (isinstance(one, OneOf) and isinstance(other, OneOf) and one.field == other.field):
        return False
    return {*one.keys} < {*other.keys}
