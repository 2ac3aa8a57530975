"""Filters over metadata: conditions on fields that a document must meet together, also on dates.

Names of fields and texts are compared in Unicode's composed form (NFC). macOS writes another form of the same letters,
and a filter that took it for another text would show a key what it must not see.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, datetime, timedelta
from typing import Generic, Self, TypeVar
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from taugate.release.names import BOOLEANS, DATES, NUMBERS, TEXTS
from taugate.storage.files import Json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
_DAY_CHARACTERS = len("2024-05-31")
DAY = 86400.0  # seconds
# ISO 8601 as most software writes it: a day, optionally with a time and an offset from UTC. fromisoformat also accepts
# forms such as 20240531, which may be other numbers.
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?[Zz]|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)
EXAMPLE = "2024-05-31"  # for messages

Value = str | int | float | bool
SortKey = tuple[int, Value]  # rank of the kind and the value, so that keys compare by kind first

BOUNDS = ("gt", "gte", "lt", "lte")
ANY, NOT = "$or", "$not"  # keys of combinations in JSON
T = TypeVar("T")


def instant(text: str) -> float | None:
    """Return the moment of an ISO date in seconds since 1970; None for any other text."""
    # A day counts as its first moment, and a time without an offset as UTC. Exact to the microsecond until 2242.
    if not _DATE.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.upper().replace(" Z", "Z"))
    except ValueError:  # no such day or time exists
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH).total_seconds()


def is_day(text: str) -> bool:
    """Return whether an ISO date names a day without a time."""
    return len(text) == _DAY_CHARACTERS


def written(seconds: float) -> str:
    """Return the ISO date of a moment to the microsecond; later moments become the last one of 9999."""
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        moment = _LATEST
    return moment.isoformat()


def only_value(query_filter: "Filter") -> tuple[str, SortKey] | tuple[None, None]:
    """Return the field of which a filter selects exactly one value, with the value; None for any other filter."""
    match query_filter:
        case (OneOf(field=name, keys=(value,)),):
            return name, value
    return None, None


def composed(text: str) -> str:
    """Return a text in the form in which names and values are compared."""
    return normalize("NFC", text)


def sort_key(value: Value) -> SortKey:
    """Return a value of a document or a filter, in composed form, with the rank of its kind; see `stored_key`."""
    return stored_key(composed(value) if isinstance(value, str) else value)


def stored_key(value: Value) -> SortKey:
    """Return a value with the rank of its kind, which makes all values comparable."""
    # Texts are ordered by code point; int and float compare exactly at any size.
    if isinstance(value, bool):
        return BOOLEANS, value
    return TEXTS if isinstance(value, str) else NUMBERS, value


class Condition(ABC):
    """A condition that a document meets or not."""

    __slots__ = ()

    @property
    def parts(self) -> "tuple[Filter, ...]":
        """The filters that it combines; none of a condition on a field."""
        return ()

    @property
    def on_field(self) -> "FieldCondition | None":
        """The condition itself if it is on a field."""
        return None

    @property
    def place(self) -> tuple[bool, str]:
        """Its place in the canonical order: by field, then combinations."""
        return (True, repr(self)) if self.on_field is None else (False, self.on_field.field)

    @abstractmethod
    def evaluate(self, rules: "FilterRules[T]") -> T:
        """Return what the rules say of the condition."""

    @abstractmethod
    def to_json(self) -> tuple[str, Json]:
        """Return the key and the value of the condition in JSON."""

    def negated_json(self) -> tuple[str, Json]:
        """Return the key and the value of its negation in JSON."""
        return NOT, filter_json((self,))

    def implies(self, other: "Condition") -> bool:
        """Return whether every document that meets it is known to meet another condition."""
        return False

    def allows_all(self, field: str, keys: frozenset[SortKey]) -> bool:
        """Return whether it is met if a field has one of some values, and by further values."""
        return False


class FieldCondition(Condition):
    """A condition on one field."""

    __slots__ = ()
    field: str
    keys: tuple[SortKey, ...]

    @property
    def on_field(self) -> "FieldCondition":
        """The condition."""
        return self

    @property
    @abstractmethod
    def kinds(self) -> set[int]:
        """The kinds of values that the field is compared with."""


@dataclass(frozen=True, slots=True)
class OneOf(FieldCondition):
    """The condition that a field equals one of some values or, if it is a list of tags, contains one of them."""

    field: str
    keys: tuple[SortKey, ...]  # distinct ascending sort keys of the values

    @classmethod
    def of(cls, field: str, *values: Value) -> Self:
        """Create the condition from values in any order."""
        return cls(composed(field), tuple(sorted({sort_key(value) for value in values})))

    @property
    def kinds(self) -> set[int]:
        """See FieldCondition."""
        return {kind for kind, _ in self.keys}

    def evaluate(self, rules: "FilterRules[T]") -> T:
        """See Condition."""
        return rules.one_of(self)

    def to_json(self) -> tuple[str, Json]:
        """See Condition."""
        values = [value for _, value in self.keys]
        return self.field, values[0] if len(values) == 1 else values

    def negated_json(self) -> tuple[str, Json]:
        """See Condition."""
        return self.field, {"nin": [value for _, value in self.keys]}

    def implies(self, other: Condition) -> bool:
        """See Condition."""
        return other.allows_all(self.field, frozenset(self.keys))

    def allows_all(self, field: str, keys: frozenset[SortKey]) -> bool:
        """See Condition."""
        return field == self.field and keys < {*self.keys}


@dataclass(frozen=True, slots=True)
class Range(FieldCondition):
    """The condition that a field is a number or a date within bounds; None is no bound."""

    field: str
    gt: float | None = None  # exclusive lower bound
    gte: float | None = None  # inclusive lower bound
    lt: float | None = None  # exclusive upper bound
    lte: float | None = None  # inclusive upper bound
    kind: int = NUMBERS  # NUMBERS, or DATES, whose bounds are seconds since 1970
    keys: tuple[SortKey, ...] = dataclass_field(default=(), init=False, repr=False, compare=False)  # none

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

    @property
    def kinds(self) -> set[int]:
        """See FieldCondition."""
        return {self.kind}

    def evaluate(self, rules: "FilterRules[T]") -> T:
        """See Condition."""
        return rules.within(self)

    def to_json(self) -> tuple[str, Json]:
        """See Condition."""
        bounds = {operator: bound for operator in BOUNDS if (bound := getattr(self, operator)) is not None}
        if self.kind == DATES:
            return self.field, {operator: written(bound) for operator, bound in bounds.items()}
        return self.field, bounds


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """The condition that a document does not meet a filter.

    A document without a field meets no condition on that field, so it meets every negated one.
    """

    negated: "Filter"

    @property
    def parts(self) -> "tuple[Filter, ...]":
        """See Condition."""
        return (self.negated,)

    def evaluate(self, rules: "FilterRules[T]") -> T:
        """See Condition."""
        return rules.negate(rules.all_hold(self.negated))

    def to_json(self) -> tuple[str, Json]:
        """See Condition."""
        if len(self.negated) == 1:
            return self.negated[0].negated_json()
        return NOT, filter_json(self.negated)


@dataclass(frozen=True, slots=True)
class AnyOf(Condition):
    """The condition that a document meets at least one of some filters."""

    filters: tuple["Filter", ...]  # at least two distinct filters with at least one condition, in canonical order

    @classmethod
    def of(cls, filters: Iterable["Filter"]) -> "Filter":
        """Combine filters so that equal combinations compare equal in any order; a single filter is returned as is."""
        distinct = sorted({*filters}, key=repr)
        return (cls(tuple(distinct)),) if len(distinct) > 1 else distinct[0]

    @property
    def parts(self) -> "tuple[Filter, ...]":
        """See Condition."""
        return self.filters

    def evaluate(self, rules: "FilterRules[T]") -> T:
        """See Condition."""
        return rules.any_of([rules.all_hold(part) for part in self.filters])

    def to_json(self) -> tuple[str, Json]:
        """See Condition."""
        return ANY, [filter_json(part) for part in self.filters]


Filter = tuple[Condition, ...]  # all of them hold


@dataclass(frozen=True)
class FilterRules(Generic[T]):
    """How filters are evaluated: what the two kinds of conditions on fields are, and how they are combined."""

    one_of: Callable[[OneOf], T]
    within: Callable[[Range], T]
    negate: Callable[[T], T]
    any_of: Callable[[list[T]], T]
    all_of: Callable[[list[T]], T]

    def all_hold(self, query_filter: Filter) -> T:
        """Evaluate a filter with at least one condition."""
        return self.all_of([condition.evaluate(self) for condition in query_filter])


def all_of(*conditions: Condition) -> Filter:
    """Combine conditions in canonical order, so that equal filters compare equal: by field, then combinations."""
    return tuple(sorted(conditions, key=lambda condition: condition.place))


def every_condition(query_filter: Filter) -> Iterator[Condition]:
    """Yield every condition of a filter, including combined ones."""
    for condition in query_filter:
        yield condition
        for part in condition.parts:
            yield from every_condition(part)


def on_fields(query_filter: Filter) -> Iterator[FieldCondition]:
    """Yield the conditions on fields in a filter, at any depth of `Not` and `AnyOf`."""
    return (leaf for condition in every_condition(query_filter) if (leaf := condition.on_field) is not None)


def filter_json(query_filter: Filter) -> dict[str, Json]:
    """Return the JSON of a filter, which `read_filter` parses to a filter that selects the same documents."""
    # In JSON a field occurs once. Further conditions on it are moved into a `$not`, which adds up to two conditions
    # each, so a filter near the size limit may exceed it afterwards.
    written: dict[str, Json] = {}
    negated: list[Json] = []  # filters that must not hold
    for condition in query_filter:
        name, content = condition.to_json()
        before = written.get(name)
        if name == NOT:
            negated.append(content)
        elif name not in written:
            written[name] = content
        elif isinstance(content, dict) and isinstance(before, dict) and not content.keys() & before.keys():
            written[name] = before | content
        else:
            negated.append({NOT: {name: content}})
    if negated:
        written[NOT] = negated[0] if len(negated) == 1 else {ANY: negated}
    return written


def both(first: Filter, second: Filter) -> Filter:
    """Combine two filters into one that a document meets if it meets both."""
    # A field may then have several conditions, all of which must hold. Conditions that another condition implies are
    # dropped: {"lang": "sv"} and {"lang": ["sv", "en"]} become {"lang": "sv"}.
    if not first or not second:
        return first or second
    conditions = [*dict.fromkeys((*first, *second))]  # without duplicates
    return all_of(
        *(condition for condition in conditions if not any(stricter.implies(condition) for stricter in conditions))
    )
