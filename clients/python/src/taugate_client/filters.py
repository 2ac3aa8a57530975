"""Construction of Taugate filters, for retrievers that translate the filters of their frameworks.

A Taugate filter is {"field": condition, …}, all of which must hold. `$or` and `$not` contain further filters.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, TypeAlias, TypeGuard

from taugate_client.errors import UnsupportedFilter

Scalar: TypeAlias = str | int | float | bool
# {"field": condition}, all of which must hold; also {"$or": [filter, …]} and {"$not": filter}.
Filter: TypeAlias = Mapping[str, "Scalar | Sequence[Scalar] | Mapping[str, Any] | Sequence[Filter]"]  # Any: JSON

_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_BOUNDS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}


def compare(field: str, operator: str, value: object) -> Filter:
    """Return the filter for one condition.

    Args:
        field: Metadata field of the documents.
        operator: `==`, `!=`, `>`, `>=`, `<`, `<=`, `in` or `not in`.
        value: For `==` and `!=` a string, number or boolean; for `>` and similar a number, an ISO date, a date or a
            datetime; for `in` and `not in` a list.

    Raises:
        UnsupportedFilter: If Taugate cannot express the condition.
    """
    if field.startswith("$"):
        raise UnsupportedFilter(f"filter: the field {field!r} begins with $, which Taugate reserves for operators")
    if operator in ("in", "not in"):
        if isinstance(value, str) or not isinstance(value, Sequence) or not value:
            raise UnsupportedFilter(f"filter: {field}: {operator!r} needs a list that is not empty")
        values = [_scalar(field, operator, item) for item in value]
        return {field: values} if operator == "in" else {field: {"nin": values}}
    scalar = _scalar(field, operator, _iso(value))
    if operator == "==":
        return {field: scalar}
    if operator == "!=":
        return {field: {"ne": scalar}}
    if operator not in _BOUNDS:
        raise UnsupportedFilter(f"filter: {field}: Taugate has no operator {operator!r}")
    if isinstance(scalar, bool) or (isinstance(scalar, str) and not _ISO_DATE.match(scalar)):
        raise UnsupportedFilter(f"filter: {field}: {operator!r} needs a number, or an ISO date such as 2024-05-31")
    return {field: {_BOUNDS[operator]: scalar}}


def all_of(filters: Sequence[Filter]) -> Filter:
    """Return a filter that matches if all filters match; the empty filter matches every document."""
    joined: dict[str, Any] = {}  # Any: conditions, whose type mypy cannot narrow by their keys
    for field, condition in (entry for part in filters for entry in part.items()):
        present = joined.get(field)
        if present is None:
            joined[field] = condition
        elif _is_range(present) and _is_range(condition) and not set(present) & set(condition):
            joined[field] = {**present, **condition}
        else:  # a field can have only one condition, so: not (not a or not b)
            return negate(any_of([negate(part) for part in filters if part]))
    return joined


def any_of(filters: Sequence[Filter]) -> Filter:
    """Return a filter that matches if at least one filter matches.

    Raises:
        UnsupportedFilter: If there are no filters.
    """
    if not filters:
        raise UnsupportedFilter("filter: an OR needs at least one condition")
    return filters[0] if len(filters) == 1 else {"$or": list(filters)}


def negate(filter: Filter) -> Filter:
    """Return a filter that matches if `filter` does not.

    Raises:
        UnsupportedFilter: If the filter is empty.
    """
    if not filter:
        raise UnsupportedFilter("filter: a NOT needs at least one condition")
    return {"$not": filter}


def _is_range(condition: object) -> TypeGuard[Mapping[str, float]]:
    return isinstance(condition, Mapping) and set(condition) <= set(_BOUNDS.values())


def _iso(value: object) -> object:
    """Convert a Python date, or LangChain's {"date": text, "type": "date"}, to ISO text; return other values as is."""
    if isinstance(value, Mapping) and value.get("type") in {"date", "datetime"}:
        return value.get(value["type"])
    return value.isoformat() if isinstance(value, date) else value  # a datetime is a date


def _scalar(field: str, operator: str, value: object) -> Scalar:
    if not isinstance(value, str | int | float | bool) or (isinstance(value, float) and not math.isfinite(value)):
        kind = "null" if value is None else type(value).__name__
        raise UnsupportedFilter(
            f"filter: {field}: {operator!r} cannot compare with {kind}; use a string, number or boolean"
        )
    return value
