"""Delimited text (CSV, TSV and similar) to documents, one per row, with typed columns.

Typed columns: columns of text whose values are all numbers, all dates, or all booleans get values of that kind. A
column changes as a whole or not at all, so that a filter means the same for every row.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from taugate.data.parsed import ParsedDocument, ParsedFile, UnreadableFile
from taugate.retrieval.documents.store import Scalar
from taugate_import.dialects import Reading, read_delimited
from taugate_import.plain_text import decode_text
from taugate_import.records import ID_FIELDS, TEXT_FIELDS
from taugate_import.table_rows import Table, table_of, table_to_documents
from taugate_import.values import TypedCell, plain_value

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

_SEPARATOR_LINE = re.compile(r"sep=(.)\n", re.IGNORECASE)  # of Excel
_RULE = re.compile(r"\s*(?::?-{3,}:?|-+[-+]{2,}-+|\\\.)?\s*")  # a line below a header; the end of COPY
_MAX_NAMED = 10  # lines that a note names
_MISSING_CELL = re.compile(r"(?<![^\t;|,\n\"])(?:\\N|nan|na|n/a|null|none)(?![^\t;|,\n\"])", re.IGNORECASE)


def typed_column(values: Sequence[str]) -> tuple[list[Scalar], str | None] | None:
    """Return the values of a column as numbers, dates in ISO 8601, or booleans.

    Returns:
        The values, None for missing ones, and the reason if the column unexpectedly remains text; None if the column is
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
    """Return a date, possibly with a time, in ISO 8601; None if there is no such day."""
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
    """Return rows whose cells are typed, and notes on columns that remain text; missing values are None."""
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


@dataclass(frozen=True, slots=True)
class _Unread:
    """Parts of a file that are not in its documents."""

    header: range
    escaped: bool


def parse_delimited(raw: bytes) -> ParsedFile:
    """Read one document per row, with any delimiter, quotes and escapes."""
    lines, notes = _lines(raw)
    delimiter = None
    if match := _SEPARATOR_LINE.fullmatch(lines[0]):
        delimiter = match[1]
        lines[0] = "\n"
    if not any(map(str.strip, lines)):
        raise UnreadableFile("holds no record with text")
    documents, table_notes, unread = _documents(lines, delimiter)
    return ParsedFile(documents, _source_text(lines, unread), (*notes, *table_notes))


def _lines(raw: bytes) -> tuple[list[str], tuple[str, ...]]:
    """Return the lines of a file, divided at line feeds alone, and notes about its encoding."""
    decoded = decode_text(raw)
    return [line + "\n" for line in decoded.text.removesuffix("\n").split("\n")], decoded.notes


def _documents(lines: Sequence[str], delimiter: str | None) -> tuple[list[ParsedDocument], list[str], _Unread]:
    """Return the documents of delimited text, notes on reading it, and the parts that are not in the documents."""
    reading = read_delimited(lines, delimiter)
    rows = [["" if cell == "\\N" else cell for cell in row] for row in reading.rows.rows]
    rows = [[""] if all(map(_RULE.fullmatch, row)) else row for row in rows]
    above = [" ".join(" ".join(row).split()) for row in rows[: reading.first]]
    regular = _regular(reading, rows[reading.first :])
    table = table_of(regular)
    if table.header is not None and table.names[0].startswith("#"):
        table = replace(table, names=(table.names[0].lstrip("# "), *table.names[1:]))
    table = replace(table, above=(*(line for line in above if line), *table.above))
    odd = {tuple(regular[n - reading.first]) for n in {*reading.irregular, *reading.rows.faults} if n >= reading.first}
    typed, kept = _typed(table, odd)
    documents = table_to_documents(table, typed)
    header = range(0)
    if table.header is not None:
        row = reading.first + table.header
        begins = [*reading.rows.lines, len(lines) + 1]
        header = range(begins[row] - 1, begins[row + 1] - 1)
    return documents, [*_irregular_notes(reading), *table.notes, *kept], _Unread(header, reading.dialect.escaped)


def _regular(reading: Reading, rows: Sequence[list[str]]) -> list[list[str]]:
    """Return rows with as many cells as the header: surplus cells are joined to the longest column."""
    width = reading.width
    if not reading.irregular and all(len(row) == width for row in rows):
        return [*rows]
    header = [cell.strip() for cell in rows[0]]
    named = next((header.index(name) for name in TEXT_FIELDS if name in header), None)
    sizes = [sum(len(row[i]) for row in rows[:1000] if len(row) == width) for i in range(width)]
    text = sizes.index(max(sizes)) if named is None else named
    regular = []
    for row in rows:
        extra = len(row) - width
        if extra > 0 and any(row[width:]):
            joined = (reading.dialect.delimiter or "").join(row[text : text + extra + 1])
            regular.append([*row[:text], joined, *row[text + extra + 1 :]])
        else:
            regular.append([*row[:width], *[""] * -extra])
    return regular


def _typed(table: Table, odd: Collection[tuple[str, ...]]) -> tuple[list[list[object]], list[str]]:
    """Return the rows of a table with typed columns, and notes about the columns.

    Args:
        odd: Irregular rows. They do not influence the kind of a column; their cells of another kind are added to the
            longest column.
    """
    text = frozenset({*TEXT_FIELDS, *ID_FIELDS, "title"})
    rows = [[str(cell) for cell in row] for row in table.rows]
    typed, notes = typed_rows(table.names, [row for row in rows if tuple(row) not in odd], text)
    if not odd:
        return [list[object](row) for row in typed], notes
    kinds = [next((_kind(row[i]) for row in typed if row[i] is not None), str) for i in range(len(table.names))]
    regular = iter(typed)
    merged: list[list[object]] = []
    for row in rows:
        if tuple(row) not in odd:
            merged.append([*next(regular)])
            continue
        merged.append(_fitted(row, kinds))
    return merged, notes


def _fitted(row: Sequence[str], kinds: Sequence[type]) -> list[object]:
    """Return a row in which cells that do not fit their column's kind are added to the longest cell of text."""
    fitted: list[object] = [*row]
    texts = [i for i, kind in enumerate(kinds) if kind is str]
    misfits = []
    for position, (cell, kind) in enumerate(zip(row, kinds, strict=True)):
        if kind is not str:
            typed, _ = typed_rows(["_"], [[cell]], frozenset())
            value = typed[0][0]
            fits = _kind(value) is kind or (kind is float and _kind(value) is int)
            fitted[position] = value if fits else None
            if not fits and cell.strip().lower() not in MISSING:
                misfits.append(cell)
    if not any(row[1:]) and len(row[0].split()) > 1 and len(texts) > 1:
        fitted[texts[1]] = row[0]  # a line below the table, such as the number of rows, is more than an id
    elif misfits and texts:
        longest = max(texts, key=lambda i: len(row[i]))
        fitted[longest] = "\n".join([row[longest], *misfits])
    elif misfits:
        fitted[0] = "\n".join(misfits)
    return fitted


def _kind(cell: object) -> type:
    return type(plain_value(cell))


def _irregular_notes(reading: Reading) -> list[str]:
    notes = []
    for numbers, sentence in (
        (reading.irregular, "another number of fields than the header"),
        (sorted(set(reading.rows.faults) - set(reading.irregular)), "quotes that do not match"),
    ):
        if numbers:
            lines = [str(reading.rows.lines[number]) for number in numbers]
            remainder = f" and {len(lines) - _MAX_NAMED:,} more" if len(lines) > _MAX_NAMED else ""
            verb, plural = ("row has", "") if len(lines) == 1 else ("rows have", "s")
            notes.append(f"{len(lines):,} {verb} {sentence}: line{plural} {', '.join(lines[:_MAX_NAMED])}{remainder}")
    return notes


def _source_text(lines: Sequence[str], unread: _Unread) -> str:
    """Return the text of a file without its header, escapes and marks of missing values."""
    kept = (line for number, line in enumerate(lines) if number not in unread.header)
    plain = (re.sub(r"\\[ntrN]", " ", line) for line in kept) if unread.escaped else kept
    return "".join(_MISSING_CELL.sub("", line) for line in plain)
