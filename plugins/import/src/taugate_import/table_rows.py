"""Rows of cells to documents, for tables of any source: delimited text and spreadsheets."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import cast

from taugate.data.parsed import ParsedDocument, TextBuilder, UnreadableFile
from taugate_import.records import ID_FIELDS, TEXT_FIELDS, records_to_documents
from taugate_import.values import Fields, plain_value, scalar_of, value_text, written_form

USUAL_NAMES = {
    *TEXT_FIELDS,
    *ID_FIELDS,
    "title",
    "question",
    "answer",
    "name",
    "url",
    "date",
    "description",
    "category",
}
_TEXTS = {*TEXT_FIELDS, *ID_FIELDS, "title"}  # columns whose cells are used as they are written
_NUMBER = re.compile(r"[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?%?")
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ]\d.*)?")
_YEAR = re.compile(r"(?:19|20)\d\d")
_MAX_ABOVE = 20  # rows above a header
_MAX_TITLE = 200  # characters above a header that become the title of the rows
_MIN_FULL = 0.6  # minimum share of the usual number of filled cells in a header
_MIN_PROSE = 5  # words in a cell of prose on average, and in a sentence as opposed to a name
_SAMPLE = 200  # rows


@dataclass(frozen=True, slots=True)
class Table:
    """A table with names for its columns.

    Attributes:
        header: Position of the header among the rows that the table was made from, None if it has none.
    """

    above: tuple[str, ...]
    header: int | None
    names: tuple[str, ...]
    rows: list[Sequence[object]]
    notes: tuple[str, ...] = ()


def rows_to_documents(rows: Sequence[Sequence[object]]) -> list[ParsedDocument]:
    """Turn the rows of a table into documents, by the rules of `records_to_documents`.

    Args:
        rows: Cells of any type, None or "" if empty. The first full row names the columns; lines above it are the title
            of documents that have none.
    """
    table = table_of(rows)
    return table_to_documents(table, table.rows)


def table_of(rows: Sequence[Sequence[object]]) -> Table:
    """Return the table in some rows, after finding its header.

    Args:
        rows: Cells of any type; empty rows are skipped.
    """
    filled = [number for number, row in enumerate(rows) if count_filled(row)]
    if not filled:
        raise UnreadableFile("holds no record with text")
    first = _first_full(rows, filled)
    above = tuple(_line(rows[number]) for number in filled[:first])
    below = [rows[number] for number in filled[first:]]
    header = [cell_text(cell) for cell in below[0]]
    if _is_data(below[0], below[1:]):
        names, note = _names_without_header(below)
        return Table(above, None, names, below, (note,))
    if len(below) == 1:
        raise UnreadableFile("has a header row but no row below it")
    names = _different(header, max(map(len, below)))
    doubled = sorted({name for name in header if name and header.count(name) > 1})
    notes = (f"has several columns named {', '.join(doubled)}",) if doubled else ()
    return Table(above, filled[first], names, below[1:], notes)


def table_to_documents(table: Table, rows: Sequence[Sequence[object]]) -> list[ParsedDocument]:
    """Turn a table into documents: one per row, and one of lines above the header that are too long for a title."""
    title = " ".join(table.above)
    short = 0 < len(title) <= _MAX_TITLE
    records = [_record(table, row, original) for row, original in zip(rows, table.rows, strict=True)]
    documents = records_to_documents(records, title if short else "")
    if table.above and not short:
        builder = TextBuilder()
        for line in table.above:
            builder.add(line, "prose")
        keys = {document.key for document in documents}
        documents.append(builder.document("", next(key for n in range(len(keys) + 1) if (key := str(n)) not in keys)))
    return documents


def _record(table: Table, row: Sequence[object], original: Sequence[object]) -> Fields:
    """Return a row as a record; without a header, its text is all of its cells, or the only cell of prose."""
    cells = (
        (name, written_form(cell) if name in _TEXTS else cell) for name, cell in zip(table.names, row, strict=False)
    )
    record = {name: cell for name, cell in cells if cell is not None and (cell != "" or name.strip("_"))}
    if table.header is None and "text" not in table.names:
        record["text"] = "\n".join(text for cell in original if (text := cell_text(cell)))
    return cast("Fields", record)


def _first_full(rows: Sequence[Sequence[object]], filled: Sequence[int]) -> int:
    """Return the first of the filled rows with about as many cells as most rows have, as titles have fewer."""
    counts = [count_filled(rows[number]) for number in filled]
    usual, _ = max(Counter(counts).items(), key=lambda item: (item[1], item[0]))
    enough = max(min(usual, 2), _MIN_FULL * usual)
    first = next(number for number, count in enumerate(counts) if count >= enough)
    return first if first <= _MAX_ABOVE else 0


def _is_data(first: Sequence[object], below: Sequence[Sequence[object]]) -> bool:
    """Return whether the first row of a table is data like the rows below, so that no row names the columns."""
    header = [cell_text(plain_value(cell)) for cell in first]
    if any(cell.casefold() in USUAL_NAMES for cell in header):
        return False
    typed = [position for position, cell in enumerate(header) if is_typed(cell)]
    if len(typed) > 1 and all(_YEAR.fullmatch(header[position]) for position in typed):
        return False  # one column per year
    sample = below[:_SAMPLE]
    for position in typed:
        column = [text for row in sample if position < len(row) and (text := cell_text(plain_value(row[position])))]
        is_date = [bool(_DATE.fullmatch(text)) for text in (header[position], *column[:1])]  # numbers by month
        if not column or (all(map(is_typed, column)) and is_date[0] == is_date[1]):
            return True
    if any(cell.endswith("?") and _are_questions(sample, position) for position, cell in enumerate(header)):
        return True
    return any(_is_sentence(cell) for cell in header) and not any(cell.endswith(("?", ":")) for cell in header)


def _are_questions(rows: Sequence[Sequence[object]], position: int) -> bool:
    """Return whether most cells of a column are questions, as in lists of frequent ones."""
    cells = [text for row in rows if position < len(row) and (text := cell_text(row[position]))]
    return 2 * sum(cell.endswith("?") for cell in cells) > len(cells)


def _names_without_header(rows: Sequence[Sequence[object]]) -> tuple[tuple[str, ...], str]:
    """Return names for the columns of a table without a header, and the note about them."""
    width = max(map(len, rows))
    names = [f"column_{number}" for number in range(1, width + 1)]
    sample = rows[:_SAMPLE]
    words = [
        sum(len(cell_text(cell).split()) for row in sample for cell in row[i : i + 1]) / len(sample)
        for i in range(width)
    ]
    prose = [position for position, count in enumerate(words) if count >= _MIN_PROSE]
    # A question is useless without its answer, even a short one.
    has_questions = any(_are_questions(sample, position) for position in range(width))
    if (len(prose) != 1 or has_questions) and width > 1:
        return tuple(names), "has no row that names its columns; they are column_1, column_2, …"
    text = prose[0] if prose else 0
    names[text] = "text"
    if text == 0 or not _are_ids([cell_text(row[0]) for row in rows if row]):
        return tuple(names), f"has no row that names its columns; column {text + 1} is the text"
    names[0] = "id"
    return tuple(names), f"has no row that names its columns; column 1 is the id, and column {text + 1} the text"


def _are_ids(values: Sequence[str]) -> bool:
    return len(set(values)) == len(values) and all(len(value.split()) == 1 for value in values)


def _different(header: Sequence[str], width: int) -> tuple[str, ...]:
    """Return distinct names: underscores are added to repeated and empty names."""
    names: dict[str, None] = {}
    for position in range(width):
        name = (header[position] if position < len(header) else "") or "_"
        while name in names:
            name += "_"
        names[name] = None
    return tuple(names)


def is_typed(text: str) -> bool:
    """Return whether a cell looks like a number or a date."""
    return bool(_NUMBER.fullmatch(text) or _DATE.fullmatch(text))


def is_name(cell: object) -> bool:
    """Return whether a cell may name a column: it is a text, or a year."""
    text = cell_text(plain_value(cell))
    return bool(text) and (not is_typed(text) or bool(_YEAR.fullmatch(text)))


def _is_sentence(text: str) -> bool:
    return len(text.split()) >= _MIN_PROSE and (text.endswith((".", "!", '."', "。")) or len(text) > 2 * _MAX_TITLE)


def count_filled(row: Sequence[object]) -> int:
    """Return the number of cells that are not empty."""
    return sum(1 for cell in row if cell is not None and (not isinstance(cell, str) or cell.strip()))


def _line(row: Sequence[object]) -> str:
    return " ".join(text for cell in row if (text := cell_text(cell)))


def cell_text(cell: object) -> str:
    """Return a cell as text on one line."""
    cell = written_form(cell)
    if isinstance(cell, str):
        return " ".join(cell.split())
    if isinstance(cell, date | time):
        return cell.isoformat()
    return "" if (scalar := scalar_of(cell)) is None else value_text(scalar)
