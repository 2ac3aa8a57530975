"""The field `filter` of a search request: parsed from JSON, or refused with one message that names what is wrong."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

from taugate.retrieval.documents import dates
from taugate.retrieval.documents.field_types import shown
from taugate.retrieval.documents.filters import (
    DATES,
    AnyOf,
    Condition,
    Filter,
    Not,
    OneOf,
    Range,
    Value,
    all_of,
    on_fields,
)

# A condition is one look at every document, a value one binary search: benchmarks/serving/filters.py says how long.
MAX_CONDITIONS = 16
MAX_VALUES = 256
_BOUNDS = ("gt", "gte", "lt", "lte")
_OPERATORS = (*_BOUNDS, "ne", "nin")
_ANY, _NOT = "$or", "$not"

_Scalar = str | int | float | bool


# The shape of the JSON, for the description of the API; `read_filter` checks it with messages that people can use.
_Values = Annotated[list[_Scalar], Field(min_length=1, max_length=MAX_VALUES)]


_ISO_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_Bound = float | Annotated[str, Field(pattern=_ISO_DATE)]


def _optional(**further: Any) -> Any:  # noqa: ANN401 (as `Field` itself)
    """Declare a field that may be left out, and has no value then.

    Args:
        further: Keywords of JSON Schema.
    """

    def without_default(schema: dict[str, Any]) -> None:
        del schema["default"]
        schema |= further

    return Field(None, json_schema_extra=without_default)


# A filter within another needs a condition.
_Inner = Annotated["FilterObject", Field(json_schema_extra={"minProperties": 1})]


class FieldOperators(BaseModel):
    """Bounds of a number or of an ISO date, and values that a field does not have; all of them hold."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"minProperties": 1})

    gt: _Bound = _optional()
    gte: _Bound = _optional()
    lt: _Bound = _optional()
    lte: _Bound = _optional()
    ne: _Scalar = _optional()
    nin: _Values = _optional()


class FilterObject(BaseModel):
    """Conditions by metadata field, all of which hold; `$or` and `$not` combine filters."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"maxProperties": MAX_CONDITIONS})
    # pydantic reads the type of all other fields here, which its own declaration does not foresee.
    __pydantic_extra__: dict[str, _Scalar | _Values | FieldOperators]  # pyright: ignore[reportIncompatibleVariableOverride]

    any_of: Annotated[list[_Inner], Field(alias=_ANY, title="Any of", min_length=1)] = _optional()
    negated: Annotated["FilterObject", Field(alias=_NOT, title="Not")] = _optional(minProperties=1)


def read_filter(value: object) -> Filter | None:
    """Parse a filter.

    Args:
        value: As JSON has it; None is no filter.

    Raises:
        PydanticCustomError: , whose message never repeats a value, as it may be private.
    """
    if value is None:
        return None
    return check_size(_filter(value, ""))


def check_size(wanted: Filter) -> Filter:
    """Return a filter that takes no longer than one may take.

    Args:
        wanted: The filter, however it was made.

    Raises:
        PydanticCustomError: As `read_filter`.
    """
    conditions = sum(1 for _ in _every(wanted))
    if conditions > MAX_CONDITIONS:
        _refuse(f"has {conditions} conditions, at most {MAX_CONDITIONS}")
    values = sum(len(condition.keys) for condition in on_fields(wanted) if isinstance(condition, OneOf))
    if values > MAX_VALUES:
        _refuse(f"has {values} values, at most {MAX_VALUES}")
    return wanted


def write_filter(wanted: Filter) -> dict[str, Any]:
    """Return the JSON of a filter. `read_filter` parses it to a filter that selects the same documents.

    JSON names a field once. Conditions that need its name again are moved into a `$not`, which takes up to two
    conditions more for each: a filter that was near the limit may be over it then.

    Args:
        wanted: The filter, however it was made.
    """
    written: dict[str, Any] = {}
    negated: list[dict[str, Any]] = []  # filters of which none may hold
    for condition in wanted:
        name, asked = _written(condition)
        if name == _NOT:
            negated.append(asked)
        elif name not in written:
            written[name] = asked
        elif isinstance(asked, dict) and isinstance(written[name], dict) and not asked.keys() & written[name].keys():
            written[name] = written[name] | asked
        else:
            negated.append({_NOT: {name: asked}})
    if negated:
        written[_NOT] = negated[0] if len(negated) == 1 else {_ANY: negated}
    return written


def _written(condition: Condition) -> tuple[str, Any]:
    """Return the name that a condition has in JSON, and what stands behind it."""
    if isinstance(condition, AnyOf):
        return _ANY, [write_filter(each) for each in condition.filters]
    if isinstance(condition, Not):
        match condition.negated:
            case (OneOf(field=name, keys=keys),):
                return name, {"nin": [value for _, value in keys]}
        return _NOT, write_filter(condition.negated)
    if isinstance(condition, OneOf):
        values = [value for _, value in condition.keys]
        return condition.field, values[0] if len(values) == 1 else values
    bounds = {operator: getattr(condition, operator) for operator in _BOUNDS}
    given = {operator: bound for operator, bound in bounds.items() if bound is not None}
    if condition.kind == DATES:
        return condition.field, {operator: dates.written(bound) for operator, bound in given.items()}
    return condition.field, given


def _every(wanted: Filter) -> Iterator[Condition]:
    """Yield every condition of a filter, those that combine others included."""
    for condition in wanted:
        yield condition
        inside = (condition.negated,) if isinstance(condition, Not) else ()
        for each in condition.filters if isinstance(condition, AnyOf) else inside:
            yield from _every(each)


def _filter(value: object, place: str, depth: int = 0) -> Filter:
    """Parse an object of conditions.

    Args:
        place: Of it within the filter, for messages.
    """
    if not isinstance(value, Mapping):
        _refuse(f'{place}is not an object: write {{"field": value}}')
    if len(value) > MAX_CONDITIONS:
        _refuse(f"{place}has {len(value)} fields, at most {MAX_CONDITIONS}")
    if depth > MAX_CONDITIONS:  # each level is a condition
        _refuse(f"is nested too deep, at most {MAX_CONDITIONS} levels")
    conditions: list[Condition] = []
    for name, asked in value.items():
        if name == _ANY:
            if not isinstance(asked, list) or not asked:
                _refuse(f"{place}{_ANY} needs a list of filters")
            conditions += AnyOf.of(_inner(each, f"{place}{_ANY}.{i} ", depth) for i, each in enumerate(asked))
        elif name == _NOT:
            conditions.append(Not(_inner(asked, f"{place}{_NOT} ", depth)))
        else:
            conditions += _conditions(name, asked)
    return all_of(*conditions)


def _inner(value: object, place: str, depth: int) -> Filter:
    """Parse a filter within another; it needs a condition, as none would be met by every document."""
    wanted = _filter(value, place, depth + 1)
    if not wanted:
        _refuse(f"{place}has no condition; name a field, or leave it out")
    return wanted


def _conditions(name: str, asked: Any) -> Filter:  # noqa: ANN401 (whatever JSON can be)
    if not isinstance(asked, Mapping):
        return (_one_of(name, asked),)
    if not asked:
        _refuse(f"{shown(name)}: no operator; use {', '.join(_OPERATORS)}")
    if any(operator not in _OPERATORS for operator in asked):
        _refuse(f"{shown(name)}: unknown operator; use {', '.join(_OPERATORS)}")
    bounds = {operator: asked[operator] for operator in _BOUNDS if operator in asked}
    conditions: list[Condition] = [_range(name, bounds)] if bounds else []
    if "ne" in asked:
        if isinstance(asked["ne"], list):
            _refuse(f"{shown(name)}: ne needs one value; use nin for a list")
        conditions.append(Not((_one_of(name, asked["ne"]),)))
    if "nin" in asked:
        if not isinstance(asked["nin"], list):
            _refuse(f"{shown(name)}: nin needs a list; use ne for one value")
        conditions.append(Not((_one_of(name, asked["nin"]),)))
    return tuple(conditions)


def _one_of(name: str, asked: Any) -> OneOf:  # noqa: ANN401
    values = asked if isinstance(asked, list) else [asked]
    if not values:
        _refuse(f"{shown(name)}: the list is empty; add a value, or leave the field out")
    if len(values) > MAX_VALUES:
        _refuse(f"{shown(name)}: {len(values)} values, at most {MAX_VALUES}")
    return OneOf.of(name, *(_value(name, each) for each in values))


def _range(name: str, bounds: Mapping[str, Any]) -> Range:
    """Parse bounds by operator: numbers all, or ISO dates all."""
    if not any(isinstance(bound, str) for bound in bounds.values()):
        numbers = {operator: _number(name, operator, bound) for operator, bound in bounds.items()}
        return Range(name, numbers.get("gt"), numbers.get("gte"), numbers.get("lt"), numbers.get("lte"))
    if not all(isinstance(bound, str) for bound in bounds.values()):
        _refuse(f"{shown(name)}: bounds mix numbers and dates; use one kind")
    lower, upper = list[tuple[float, str]](), list[tuple[float, str]]()
    for operator, text in bounds.items():
        moment = dates.instant(text)
        if moment is None:
            _refuse(f"{shown(name)}: {operator} needs a finite number, or an ISO date such as {dates.EXAMPLE}")
        # A day is all of its moments: "gt" begins, and "lte" ends, with the day after it.
        whole = dates.is_day(text)
        if operator in {"gt", "gte"}:
            lower.append((moment + dates.DAY, "gte") if whole and operator == "gt" else (moment, operator))
        else:
            upper.append((moment + dates.DAY, "lt") if whole and operator == "lte" else (moment, operator))
    # Of two bounds on one side, the tighter one: of equal ones, the one that leaves its own moment out.
    tightest = [max(lower, key=lambda each: (each[0], each[1] == "gt"))] if lower else []
    tightest += [min(upper, key=lambda each: (each[0], each[1] != "lt"))] if upper else []
    moments = {operator: moment for moment, operator in tightest}
    return Range(name, moments.get("gt"), moments.get("gte"), moments.get("lt"), moments.get("lte"), DATES)


def _number(name: str, operator: str, bound: Any) -> float:  # noqa: ANN401
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not _is_finite(bound):
        _refuse(f"{shown(name)}: {operator} needs a finite number, or an ISO date such as {dates.EXAMPLE}")
    return _as_read_from_corpus(bound)


def _value(name: str, value: Any) -> Value:  # noqa: ANN401
    if not _is_finite(value):
        _refuse(f"{shown(name)}: a number must be finite")
    if not isinstance(value, _Scalar):
        what = "null" if value is None else "a list in a list" if isinstance(value, list) else "an object in a list"
        _refuse(f"{shown(name)}: {what} is not a value; use a string, number or boolean")
    return value if isinstance(value, str) else _as_read_from_corpus(value)


def _as_read_from_corpus(number: float) -> float:
    """Return an int of more than 64 bits as the float that a corpus is read with; none is as large as an overflow."""
    if isinstance(number, float) or -(2**63) <= number < 2**64:
        return number
    try:
        return float(number)
    except OverflowError:
        return number


def _is_finite(value: object) -> bool:
    """Tell whether a number is finite; an int is, however large, where `math` would need it as a float first."""
    return not isinstance(value, float) or math.isfinite(value)


def _refuse(message: str) -> NoReturn:
    # Passed as a value: pydantic would read braces in the message itself, and a field may have any name.
    raise PydanticCustomError("filter", "{message}", {"message": message})


# A Filter or None; pydantic would put the classes that it is made of into the description, too.
FilterField = Annotated[Any, PlainValidator(read_filter, json_schema_input_type=FilterObject | None)]
