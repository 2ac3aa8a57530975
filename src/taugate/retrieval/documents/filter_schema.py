"""Parses the field `filter` of a search request from JSON, or refuses it with one message that names the problem."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

from taugate.release.names import DATES, shown
from taugate.retrieval.documents import filters
from taugate.retrieval.documents.filters import (
    ANY,
    BOUNDS,
    NOT,
    AnyOf,
    Condition,
    Filter,
    Not,
    OneOf,
    Range,
    Value,
    all_of,
    composed,
    every_condition,
    on_fields,
)

# A condition visits every document, a value takes one binary search: benchmarks/serving/filters.py measures both.
MAX_CONDITIONS = 16
MAX_VALUES = 256
_OPERATORS = (*BOUNDS, "ne", "nin")

_Scalar = str | int | float | bool


# The shape of the JSON, for the OpenAPI description only; `read_filter` checks it with helpful messages.
_Values = Annotated[list[_Scalar], Field(min_length=1, max_length=MAX_VALUES)]


_ISO_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_Bound = float | Annotated[str, Field(pattern=_ISO_DATE)]


def _optional(**further: Any) -> Any:  # noqa: ANN401 (like `Field`)
    """Declare an optional field without a default, with further keywords of JSON Schema."""

    def without_default(schema: dict[str, Any]) -> None:
        del schema["default"]
        schema |= further

    return Field(None, json_schema_extra=without_default)


# A nested filter needs a condition.
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
    # pydantic reads the type of all other fields here, although its own declaration does not allow it.
    __pydantic_extra__: dict[str, _Scalar | _Values | FieldOperators]  # pyright: ignore[reportIncompatibleVariableOverride]

    any_of: Annotated[list[_Inner], Field(alias=ANY, title="Any of", min_length=1)] = _optional()
    negated: Annotated["FilterObject", Field(alias=NOT, title="Not")] = _optional(minProperties=1)


def read_filter(value: object) -> Filter | None:
    """Parse the JSON value of a filter; None is no filter."""
    if value is None:
        return None
    return check_size(_filter(value, ""))


def check_size(query_filter: Filter) -> Filter:
    """Return a filter after checking that it is not too large."""
    conditions = sum(1 for _ in every_condition(query_filter))
    if conditions > MAX_CONDITIONS:
        _refuse(f"has {conditions} conditions, at most {MAX_CONDITIONS}")
    values = sum(len(condition.keys) for condition in on_fields(query_filter))
    if values > MAX_VALUES:
        _refuse(f"has {values} values, at most {MAX_VALUES}")
    return query_filter


def _filter(value: object, place: str, depth: int = 0) -> Filter:
    """Parse an object of conditions at a place within the filter, which messages name."""
    if not isinstance(value, Mapping):
        _refuse(f'{place}is not an object: write {{"field": value}}')
    if len(value) > MAX_CONDITIONS:
        _refuse(f"{place}has {len(value)} fields, at most {MAX_CONDITIONS}")
    if depth > MAX_CONDITIONS:  # every level is a condition
        _refuse(f"is nested too deeply, at most {MAX_CONDITIONS} levels")
    conditions: list[Condition] = []
    for name, content in value.items():
        if name == ANY:
            if not isinstance(content, list) or not content:
                _refuse(f"{place}{ANY} needs a list of filters")
            conditions += AnyOf.of(_inner(part, f"{place}{ANY}.{i} ", depth) for i, part in enumerate(content))
        elif name == NOT:
            conditions.append(Not(_inner(content, f"{place}{NOT} ", depth)))
        else:
            conditions += _conditions(composed(name), content)
    return all_of(*conditions)


def _inner(value: object, place: str, depth: int) -> Filter:
    """Parse a nested filter, which needs a condition because every document meets an empty filter."""
    query_filter = _filter(value, place, depth + 1)
    if not query_filter:
        _refuse(f"{place}has no condition; name a field, or omit it")
    return query_filter


def _conditions(name: str, content: Any) -> Filter:  # noqa: ANN401 (any JSON value)
    if not isinstance(content, Mapping):
        return (_one_of(name, content),)
    if not content:
        _refuse(f"{shown(name)}: no operator; use {', '.join(_OPERATORS)}")
    if any(operator not in _OPERATORS for operator in content):
        _refuse(f"{shown(name)}: unknown operator; use {', '.join(_OPERATORS)}")
    bounds = {operator: content[operator] for operator in BOUNDS if operator in content}
    conditions: list[Condition] = [_range(name, bounds)] if bounds else []
    if "ne" in content:
        if isinstance(content["ne"], list):
            _refuse(f"{shown(name)}: ne needs one value; use nin for a list")
        conditions.append(Not((_one_of(name, content["ne"]),)))
    if "nin" in content:
        if not isinstance(content["nin"], list):
            _refuse(f"{shown(name)}: nin needs a list; use ne for one value")
        conditions.append(Not((_one_of(name, content["nin"]),)))
    return tuple(conditions)


def _one_of(name: str, content: Any) -> OneOf:  # noqa: ANN401
    values = content if isinstance(content, list) else [content]
    if not values:
        _refuse(f"{shown(name)}: the list is empty; add a value, or omit the field")
    if len(values) > MAX_VALUES:
        _refuse(f"{shown(name)}: {len(values)} values, at most {MAX_VALUES}")
    return OneOf.of(name, *(_value(name, value) for value in values))


def _range(name: str, bounds: Mapping[str, Any]) -> Range:
    """Parse bounds by operator, which are all numbers or all ISO dates."""
    if not any(isinstance(bound, str) for bound in bounds.values()):
        numbers = {operator: _number(name, operator, bound) for operator, bound in bounds.items()}
        return Range(name, numbers.get("gt"), numbers.get("gte"), numbers.get("lt"), numbers.get("lte"))
    if not all(isinstance(bound, str) for bound in bounds.values()):
        _refuse(f"{shown(name)}: bounds mix numbers and dates; use one kind")
    lower, upper = list[tuple[float, str]](), list[tuple[float, str]]()
    for operator, text in bounds.items():
        moment = filters.instant(text)
        if moment is None:
            _refuse(f"{shown(name)}: {operator} needs a finite number, or an ISO date such as {filters.EXAMPLE}")
        # A day means all its moments, so "gt" begins and "lte" ends with the next day.
        is_day = filters.is_day(text)
        if operator in {"gt", "gte"}:
            lower.append((moment + filters.DAY, "gte") if is_day and operator == "gt" else (moment, operator))
        else:
            upper.append((moment + filters.DAY, "lt") if is_day and operator == "lte" else (moment, operator))
    # The tighter bound of a side wins; of equal ones, the exclusive one.
    tightest = [max(lower, key=lambda bound: (bound[0], bound[1] == "gt"))] if lower else []
    tightest += [min(upper, key=lambda bound: (bound[0], bound[1] != "lt"))] if upper else []
    moments = {operator: moment for moment, operator in tightest}
    return Range(name, moments.get("gt"), moments.get("gte"), moments.get("lt"), moments.get("lte"), DATES)


def _number(name: str, operator: str, bound: Any) -> float:  # noqa: ANN401
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not _is_finite(bound):
        _refuse(f"{shown(name)}: {operator} needs a finite number, or an ISO date such as {filters.EXAMPLE}")
    return _as_read_from_corpus(bound)


def _value(name: str, value: Any) -> Value:  # noqa: ANN401
    if not _is_finite(value):
        _refuse(f"{shown(name)}: a number must be finite")
    if not isinstance(value, _Scalar):
        kind = "null" if value is None else "a list in a list" if isinstance(value, list) else "an object in a list"
        _refuse(f"{shown(name)}: {kind} is not a value; use a string, number or boolean")
    return value if isinstance(value, str) else _as_read_from_corpus(value)


def _as_read_from_corpus(number: float) -> float:
    """Return an int of more than 64 bits as float, like the corpus reader; too large ones equal no stored number."""
    if isinstance(number, float) or -(2**63) <= number < 2**64:
        return number
    try:
        return float(number)
    except OverflowError:
        return number


def _is_finite(value: object) -> bool:
    """Return whether a number is finite; every int is, while `math` fails for ints too large for a float."""
    return not isinstance(value, float) or math.isfinite(value)


def _refuse(message: str) -> NoReturn:
    # Passed as a value, because pydantic interprets braces in the message and a field may have any name.
    raise PydanticCustomError("filter", "{message}", {"message": message})


# A Filter or None; otherwise pydantic would describe the classes of a Filter, too.
FilterField = Annotated[Any, PlainValidator(read_filter, json_schema_input_type=FilterObject | None)]
