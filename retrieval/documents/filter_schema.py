"""The field `filter` of a search request: parsed from JSON, or refused with one message that names what is wrong."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field, PlainValidator
from pydantic_core import PydanticCustomError

from taugate.retrieval.documents.filters import Condition, Filter, OneOf, Range, Value, all_of
from taugate.retrieval.documents.metadata import shown

# A condition is one look at every document, a value one binary search: benchmarks/serving/filters.py says how long.
MOST_CONDITIONS = 16
MOST_VALUES = 256
_OPERATORS = ("gt", "gte", "lt", "lte")

_Scalar = str | int | float | bool


# The shape of the JSON, for the description of the API; `read_filter` checks it with messages that people can use.
_Bounds = Annotated[dict[Literal["gt", "gte", "lt", "lte"], float], Field(min_length=1)]
_Values = Annotated[list[_Scalar], Field(min_length=1, max_length=MOST_VALUES)]
_Fields = Annotated[dict[str, _Scalar | _Values | _Bounds], Field(max_length=MOST_CONDITIONS)]


def read_filter(value: object) -> Filter | None:
    """Parse a filter.

    value: as JSON has it; None is no filter. Raises PydanticCustomError, whose message never repeats a value, as it may
    be private.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        _refuse('is not an object: write {"field": value}')
    if len(value) > MOST_CONDITIONS:
        _refuse(f"has {len(value)} fields, at most {MOST_CONDITIONS}")
    wanted = all_of(*(_condition(name, asked) for name, asked in value.items()))
    values = sum(len(condition.keys) for condition in wanted if isinstance(condition, OneOf))
    if values > MOST_VALUES:
        _refuse(f"has {values} values, at most {MOST_VALUES}")
    return wanted


def write_filter(wanted: Filter) -> dict[str, Any]:
    """Return the JSON that `read_filter` parses to this filter, which has one condition a field, as a request's has."""
    return {condition.field: _asked(condition) for condition in wanted}


def _asked(condition: Condition) -> Value | list[Value] | dict[str, float]:
    if isinstance(condition, OneOf):
        values = [value for _, value in condition.keys]
        return values[0] if len(values) == 1 else values
    bounds = {operator: getattr(condition, operator) for operator in _OPERATORS}
    return {operator: bound for operator, bound in bounds.items() if bound is not None}


def _condition(name: str, asked: Any) -> Condition:  # noqa: ANN401 (whatever JSON can be)
    if isinstance(asked, Mapping):
        return Range(name, **_bounds(name, asked))
    values = asked if isinstance(asked, list) else [asked]
    if not values:
        _refuse(f"{shown(name)}: an empty list matches no document; name a value, or leave the field out")
    if len(values) > MOST_VALUES:
        _refuse(f"{shown(name)}: {len(values)} values, at most {MOST_VALUES}")
    return OneOf.of(name, *(_value(name, each) for each in values))


def _value(name: str, value: Any) -> Value:  # noqa: ANN401
    if not _is_finite(value):
        _refuse(f"{shown(name)}: a number must be finite")
    if not isinstance(value, _Scalar):
        what = "null" if value is None else "a list in a list" if isinstance(value, list) else "an object in a list"
        _refuse(f"{shown(name)}: {what} is no value; use a string, number or boolean")
    return value if isinstance(value, str) else _as_read_from_corpus(value)


def _bounds(name: str, asked: Mapping[str, Any]) -> dict[str, float]:
    if not asked:
        _refuse(f"{shown(name)}: no bound; use {', '.join(_OPERATORS)}")
    for operator, bound in asked.items():
        if operator not in _OPERATORS:
            _refuse(f"{shown(name)}: an unknown operator; use {', '.join(_OPERATORS)}")
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not _is_finite(bound):
            _refuse(f"{shown(name)}: {operator} needs a finite number")
    return {operator: _as_read_from_corpus(bound) for operator, bound in asked.items()}


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
FilterField = Annotated[Any, PlainValidator(read_filter, json_schema_input_type=_Fields | None)]
