"""Delimited text (CSV, TSV and similar) to documents, one per row."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from taugate.ingestion.importers.columns import MISSING, typed_rows
from taugate.ingestion.importers.dialect_choice import Reading, read_delimited
from taugate.ingestion.importers.nested import plain_value
from taugate.ingestion.importers.plain_text import decode_text
from taugate.ingestion.importers.records import ID_FIELDS, TEXT_FIELDS
from taugate.ingestion.importers.table_rows import Table, table_of, table_to_documents
from taugate.ingestion.parsed import ParsedDocument, ParsedFile, UnreadableFile

_SEPARATOR_LINE = re.compile(r"sep=(.)\n", re.IGNORECASE)  # of Excel
_RULE = re.compile(r"\s*(?::?-{3,}:?|-+[-+]{2,}-+|\\\.)?\s*")  # a line below a header; the end of COPY
_MAX_NAMED = 10  # lines that a note names
_MISSING_CELL = re.compile(r"(?<![^\t;|,\n\"])(?:\\N|nan|na|n/a|null|none)(?![^\t;|,\n\"])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Unread:
    """Parts of a file that are not in its documents.

    Attributes:
        header: Numbers of the header's lines, from 0.
        escaped: Whether backslashes are escapes.
    """

    header: range
    escaped: bool


def parse_delimited(raw: bytes) -> ParsedFile:
    """Read one document per row, with any delimiter, quotes and escapes.

    Args:
        raw: Content of the file.

    Raises:
        UnreadableFile: If no row has text.
    """
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
        table: The table.
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
