"""Filters over metadata: conditions on fields that a document must meet together.

Names of fields and texts are compared in Unicode's composed form (NFC). macOS writes another form of the same letters,
and a filter that took it for another text would show a key what it must not see.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

Value = str | int | float | bool
SortKey = tuple[int, Value]  # rank of the kind and the value, so that keys compare by kind first

# Kinds of the values of a field; an ISO date is both a text and a date.
BOOLEANS, NUMBERS, TEXTS, DATES = range(4)
KINDS = ("booleans", "numbers", "texts", "dates")  # for messages


def composed(text: str) -> str:
    """Return a text in the form in which names and values are compared."""
    return normalize("NFC", text)


def sort_key(value: Value) -> SortKey:
    """Return a value of a document or a filter, in composed form, with the rank of its kind; see `stored_key`."""
    return stored_key(composed(value) if isinstance(value, str) else value)


def stored_key(value: Value) -> SortKey:
    """Return a value with the rank of its kind, which makes all values comparable.

    Texts are ordered by code point; int and float compare exactly at any size.
    """
    if isinstance(value, bool):
        return BOOLEANS, value
    return TEXTS if isinstance(value, str) else NUMBERS, value


@dataclass(frozen=True, slots=True)
class OneOf:
    """The condition that a field equals one of some values or, if it is a list of tags, contains one of them.

    Attributes:
        field: Name of the field, in composed form.
        keys: Distinct ascending sort keys of the values.
    """

    field: str
    keys: tuple[SortKey, ...]

    @classmethod
    def of(cls, field: str, *values: Value) -> Self:
        """Create the condition from values in any order."""
        return cls(composed(field), tuple(sorted({sort_key(value) for value in values})))


@dataclass(frozen=True, slots=True)
class Range:
    """The condition that a field is a number or a date within bounds; None is no bound.

    Attributes:
        field: Name of the field, in composed form.
        gt: Exclusive lower bound.
        gte: Inclusive lower bound.
        lt: Exclusive upper bound.
        lte: Inclusive upper bound.
        kind: NUMBERS, or DATES, whose bounds are seconds since 1970.
    """

    field: str
    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None
    kind: int = NUMBERS

    def holds(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which values are within the bounds, bool of the shape of `values`; NaN never is."""
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

    A document without a field meets no condition on that field, so it meets every negated one.

    Attributes:
        negated: Filter with at least one condition.
    """

    negated: "Filter"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The condition that a document meets at least one of some filters.

    Attributes:
        filters: At least two distinct filters with at least one condition, in canonical order.
    """

    filters: tuple["Filter", ...]

    @classmethod
    def of(cls, filters: Iterable["Filter"]) -> "Filter":
        """Combine filters so that equal combinations compare equal in any order; a single filter is returned as is."""
        distinct = sorted({*filters}, key=repr)
        return (cls(tuple(distinct)),) if len(distinct) > 1 else distinct[0]


FieldCondition = OneOf | Range
Condition = FieldCondition | Not | AnyOf
Filter = tuple[Condition, ...]  # all of them hold


def all_of(*conditions: Condition) -> Filter:
    """Combine conditions in canonical order, so that equal filters compare equal: by field, then combinations."""
    return tuple(sorted(conditions, key=_place))


def _place(condition: Condition) -> tuple[bool, str]:
    if isinstance(condition, FieldCondition):
        return False, condition.field
    return True, repr(condition)


def on_fields(query_filter: Filter) -> Iterator[FieldCondition]:
    """Yield the conditions on fields in a filter, at any depth of `Not` and `AnyOf`."""
    for condition in query_filter:
        if isinstance(condition, FieldCondition):
            yield condition
        elif isinstance(condition, Not):
            yield from on_fields(condition.negated)
        else:
            for part in condition.filters:
                yield from on_fields(part)


def both(first: Filter, second: Filter) -> Filter:
    """Combine two filters into one that a document meets if it meets both.

    A field may then have several conditions, all of which must hold. Conditions that another condition implies are
    dropped: {"lang": "sv"} and {"lang": ["sv", "en"]} become {"lang": "sv"}.
    """
    if not first or not second:
        return first or second
    conditions = [*dict.fromkeys((*first, *second))]  # without duplicates
    return all_of(
        *(condition for condition in conditions if not any(_implies(stricter, condition) for stricter in conditions))
    )


def _implies(stricter: Condition, condition: Condition) -> bool:
    """Return whether every document that meets `stricter` meets `condition`, which is a different condition."""
    if not (isinstance(stricter, OneOf) and isinstance(condition, OneOf) and stricter.field == condition.field):
        return False
    return {*stricter.keys} < {*condition.keys}
