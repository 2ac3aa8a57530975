"""Builds Taugate's filters from conditions, as the retrievers translate those of their frameworks.

A Taugate filter is {"field": condition, …}; all of its entries hold. `$or` and `$not` hold further filters.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, TypeGuard

from taugate_client.errors import UnsupportedFilter
from taugate_client.models import Filter, Scalar

_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_BOUNDS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}


def compare(field: str, operator: str, value: object) -> Filter:
    """Return the filter for one condition.

    Args:
        field: Of the documents' metadata.
        operator: `==`, `!=`, `>`, `>=`, `<`, `<=`, `in` or `not in`.
        value: A string, number or boolean; a number, an ISO date, or a date or datetime for `>` and its like; a list
            for `in` and `not in`.

    Raises:
        UnsupportedFilter: For others.
    """
    if field.startswith("$"):
        raise UnsupportedFilter(f"filter: the field {field!r} begins with $, which Taugate keeps for its operators")
    if operator in ("in", "not in"):
        if isinstance(value, str) or not isinstance(value, Sequence) or not value:
            raise UnsupportedFilter(f"filter: {field}: {operator!r} needs a list that is not empty")
        values = [_scalar(field, operator, each) for each in value]
        return {field: values} if operator == "in" else {field: {"nin": values}}
    known = _scalar(field, operator, _iso(value))
    if operator == "==":
        return {field: known}
    if operator == "!=":
        return {field: {"ne": known}}
    if operator not in _BOUNDS:
        raise UnsupportedFilter(f"filter: {field}: Taugate has no operator {operator!r}")
    if isinstance(known, bool) or (isinstance(known, str) and not _ISO_DATE.match(known)):
        raise UnsupportedFilter(f"filter: {field}: {operator!r} needs a number, or an ISO date such as 2024-05-31")
    return {field: {_BOUNDS[operator]: known}}


def all_of(filters: Sequence[Filter]) -> Filter:
    """Return a filter that holds where all of them do; the empty filter holds for every document."""
    joined: dict[str, Any] = {}  # Any: conditions, whose type mypy cannot narrow by their keys
    for field, condition in (entry for each in filters for entry in each.items()):
        present = joined.get(field)
        if present is None:
            joined[field] = condition
        elif _is_range(present) and _is_range(condition) and not set(present) & set(condition):
            joined[field] = {**present, **condition}
        else:  # one field has no place for both, so: not (not a or not b)
            return negate(any_of([negate(each) for each in filters if each]))
    return joined


def any_of(filters: Sequence[Filter]) -> Filter:
    """Return a filter that holds where at least one of them does.

    Raises:
        UnsupportedFilter: If there is none.
    """
    if not filters:
        raise UnsupportedFilter("filter: an OR needs at least one condition")
    return filters[0] if len(filters) == 1 else {"$or": list(filters)}


def negate(filter: Filter) -> Filter:
    """Return a filter that holds where this one does not.

    Raises:
        UnsupportedFilter: For the empty filter.
    """
    if not filter:
        raise UnsupportedFilter("filter: a NOT needs at least one condition")
    return {"$not": filter}


def _is_range(condition: object) -> TypeGuard[Mapping[str, float]]:
    return isinstance(condition, Mapping) and set(condition) <= set(_BOUNDS.values())


def _iso(value: object) -> object:
    """Return a date as an ISO text: Python's own, and LangChain's {"date": text, "type": "date"}."""
    if isinstance(value, Mapping) and value.get("type") in {"date", "datetime"}:
        return value.get(value["type"])
    return value.isoformat() if isinstance(value, date) else value  # a datetime is a date


def _scalar(field: str, operator: str, value: object) -> Scalar:
    if not isinstance(value, str | int | float | bool) or (isinstance(value, float) and not math.isfinite(value)):
        what = "null" if value is None else type(value).__name__
        raise UnsupportedFilter(
            f"filter: {field}: {operator!r} cannot compare with {what}; use a string, number or boolean"
        )
    return value
