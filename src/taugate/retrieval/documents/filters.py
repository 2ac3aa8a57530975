"""Filters over metadata: conditions on fields, all of which a document has to meet."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Value = str | int | float | bool
SortKey = tuple[int, Value]  # the rank of its kind, and the value: keys compare by kind first

# Of the values of a field; a text that is an ISO date is of both of the last two.
BOOLEANS, NUMBERS, TEXTS, DATES = range(4)
KINDS = ("booleans", "numbers", "texts", "dates")  # in messages


def sort_key(value: Value) -> SortKey:
    """Return a value with the rank of its kind, which makes all values comparable.

    Args:
        value: Of a document or a filter. Texts are ordered by code point; int and float compare exactly, however large.
    """
    if isinstance(value, bool):
        return BOOLEANS, value
    return TEXTS if isinstance(value, str) else NUMBERS, value


@dataclass(frozen=True, slots=True)
class OneOf:
    """The condition that a field equals one of some values, or, where it is a list of tags, contains one of them.

    Attributes:
        field: Its name.
        keys: Sort keys of the values, distinct and ascending.
    """

    field: str
    keys: tuple[SortKey, ...]

    @classmethod
    def of(cls, field: str, *values: Value) -> Self:
        """Make the condition from the values themselves, in any order."""
        return cls(field, tuple(sorted({sort_key(value) for value in values})))


@dataclass(frozen=True, slots=True)
class Range:
    """The condition that a field is a number, or a date, within bounds.

    Attributes:
        field: Its name.
        gt: Lower bounds, exclusive and inclusive.
        gte: Lower bounds, exclusive and inclusive.
        lt: Upper bounds. None is no bound.
        lte: Upper bounds. None is no bound.
        kind: NUMBERS, or DATES, whose bounds are seconds since 1970.
    """

    field: str
    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None
    kind: int = NUMBERS

    def holds(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which values are within the bounds, bool of the shape of `values`; NaN is not."""
        within = ~np.isnan(values)
        for bound, compare in (
            (self.gt, np.greater),
            (self.gte, np.greater_equal),
            (self.lt, np.less),
            (self.lte, np.less_equal),
        ):
            if bound is not None:
                within &= compare(values, bound)
        return within


@dataclass(frozen=True, slots=True)
class Not:
    """The condition that a document does not meet a filter.

    A document that lacks a field meets no condition on it, and so its negation.

    Attributes:
        negated: The filter, of one condition or more.
    """

    negated: "Filter"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The condition that a document meets at least one of some filters.

    Attributes:
        filters: Two or more, each of one condition or more; distinct, in an order of their own.
    """

    filters: tuple["Filter", ...]

    @classmethod
    def of(cls, filters: Iterable["Filter"]) -> "Filter":
        """Combine filters, in any order, so that equal combinations compare equal; one alone is itself."""
        distinct = sorted({*filters}, key=repr)
        return (cls(tuple(distinct)),) if len(distinct) > 1 else distinct[0]


FieldCondition = OneOf | Range
Condition = FieldCondition | Not | AnyOf
Filter = tuple[Condition, ...]  # all of them hold


def all_of(*conditions: Condition) -> Filter:
    """Combine conditions, so that equal filters compare equal: by name of the field, and what combines others last."""
    return tuple(sorted(conditions, key=_place))


def _place(condition: Condition) -> tuple[bool, str]:
    if isinstance(condition, FieldCondition):
        return False, condition.field
    return True, repr(condition)


def on_fields(wanted: Filter) -> Iterator[FieldCondition]:
    """Yield the conditions on fields that a filter is made of, however deep inside `Not` and `AnyOf`."""
    for condition in wanted:
        if isinstance(condition, FieldCondition):
            yield condition
        elif isinstance(condition, Not):
            yield from on_fields(condition.negated)
        else:
            for each in condition.filters:
                yield from on_fields(each)


def both(one: Filter, other: Filter) -> Filter:
    """Combine two filters into one that a document meets where it meets both.

    A field may have several conditions then, each of which has to hold. A condition that another one implies is left
    out: {"lang": "sv"} and {"lang": ["sv", "en"]} are {"lang": "sv"}.
    """
    if not one or not other:
        return one or other
    conditions = [*dict.fromkeys((*one, *other))]  # each once
    return all_of(*(each for each in conditions if not any(_implies(better, each) for better in conditions)))


def _implies(one: Condition, other: Condition) -> bool:
    """Tell whether every document that meets `one` meets `other`, which is another condition."""
    if not (isinstance(one, OneOf) and isinstance(other, OneOf) and one.field == other.field):
        return False
    return {*one.keys} < {*other.keys}
