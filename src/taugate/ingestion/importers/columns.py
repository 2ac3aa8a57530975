"""Typed columns: columns of text whose values are all numbers, all dates, or all booleans get values of that kind.

A column changes as a whole or not at all, so that a filter means the same for every row.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date

from taugate.ingestion.importers.nested import TypedCell
from taugate.retrieval.documents.store import Scalar

MISSING = frozenset({"", "\\n", "nan", "na", "n/a", "null", "none"})
"""Spellings of a missing value in a column of numbers or dates, in lower case."""

# No leading zeros: they belong to codes. An exponent has its sign, as programs write it: 1E5 may be a part number.
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,14})")
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d{0,14})?\.\d+|-?\d(?:\.\d+)?[eE][+-]\d{1,3}|-?(?:0|[1-9]\d{0,14})")
_COMMA = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:,\d+)?")
_THOUSANDS = re.compile(r"-?[1-9]\d{0,2}(?:[.,]\d{3})+")
_TIME = r"(?:[T ]\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: ?(?:Z|[+-]\d\d:?\d\d))?)?"
_YEAR_FIRST = re.compile(rf"(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}})({_TIME})")
_YEAR_LAST = re.compile(rf"(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}})({_TIME})")


def typed_column(values: Sequence[str]) -> tuple[list[Scalar], str | None] | None:
    """Return the values of a column as numbers, dates in ISO 8601, or booleans.

    Args:
        values: Cells of the column.

    Returns:
        The values, None for missing ones, and the reason if the column unexpectedly remains text; None if the column is
        text.
    """
    stripped = [value.strip() for value in values]
    filled = [value for value in stripped if value.lower() not in MISSING]
    if not filled:
        return None
    convert, note = _converter(filled)
    if convert is None:
        return ([*values], note) if note else None
    return [None if value.lower() in MISSING else convert(value) for value in stripped], None


def _converter(values: Sequence[str]) -> tuple[Callable[[str], Scalar] | None, str | None]:
    if all(value.lower() in {"true", "false"} for value in values):
        return (lambda value: value.lower() == "true"), None
    if all(map(_WHOLE.fullmatch, values)):
        return int, None
    if all(map(_THOUSANDS.fullmatch, values)) and not all("." in value and value.count(".") == 1 for value in values):
        return None, f"{values[0]} may be a number of thousands or a decimal"
    if all(map(_DECIMAL.fullmatch, values)):
        return float, None
    if all(map(_COMMA.fullmatch, values)):
        return (lambda value: float(value.replace(",", "."))), None
    return _date_converter(values)


def _date_converter(values: Sequence[str]) -> tuple[Callable[[str], Scalar] | None, str | None]:
    if all(map(_YEAR_FIRST.fullmatch, values)):
        orders = [(0, 1, 2)]
    elif matches := [match for value in values if (match := _YEAR_LAST.fullmatch(value))]:
        if len(matches) < len(values):
            return None, None
        dotted = all(match[2] == "." for match in matches)
        orders = [(2, 1, 0)] if dotted else [(2, 1, 0), (2, 0, 1)]
    else:
        return None, None
    valid = [order for order in orders if all(_iso(value, order) for value in values)]
    if len(valid) > 1:
        return None, f"{values[0]} may begin with the day or with the month"
    return ((lambda value: _iso(value, valid[0])), None) if valid else (None, None)


def _iso(value: str, order: tuple[int, int, int]) -> str | None:
    """Return a date, possibly with a time, in ISO 8601; None if there is no such day.

    Args:
        value: A date that matches _YEAR_FIRST or _YEAR_LAST.
        order: Positions of year, month and day among its parts.
    """
    match = _YEAR_FIRST.fullmatch(value) or _YEAR_LAST.fullmatch(value)
    if match is None:
        return None
    parts = (int(match[1]), int(match[3]), int(match[4]))
    year, month, day = (parts[part] for part in order)
    try:
        on = date(year, month, day).isoformat()
    except ValueError:
        return None
    time = match[5].strip().removeprefix("T")
    return f"{on}T{time if time[1:2] != ':' else f'0{time}'}" if time else on


def typed_rows(
    names: Sequence[str], rows: Sequence[Sequence[str]], text: frozenset[str]
) -> tuple[list[list[TypedCell | str | None]], list[str]]:
    """Return rows whose cells are typed, and notes on columns that remain text; missing values are None.

    Args:
        names: Names of the columns.
        rows: Rows of cells, as many as names.
        text: Names of columns that are always text.
    """
    columns: list[list[TypedCell | str | None]] = []
    notes: list[str] = []
    for name, column in zip(names, _columns(rows, len(names)), strict=True):
        typed = None if name in text else typed_column(column)
        cells = zip(column, column if typed is None else typed[0], strict=True)
        columns.append([_cell(text, value) for text, value in cells])
        if typed and typed[1]:
            notes.append(f"keeps the column {name} as text: {typed[1]}")
    return [list(row) for row in zip(*columns, strict=True)], notes


def _cell(text: str, value: Scalar) -> TypedCell | str | None:
    if value is None:
        return None
    return text if value is text else TypedCell(value, text)


def _columns(rows: Sequence[Sequence[str]], count: int) -> Iterator[list[str]]:
    for position in range(count):
        yield [row[position] for row in rows]
