"""Spreadsheets (.xlsx, .xlsm, .xlsb, .xls, .ods) as records, with calamine, which reads all of them.

calamine reads 100,000 rows in 1.5 s and openpyxl in 9 s (docs/dependencies.md). As calamine ignores comments and
drawings, they are read here.
"""

import dataclasses
import datetime
import io
import re
from collections.abc import Iterator, Sequence

import python_calamine as calamine

from taugate.ingestion.importers.office_package import Package, text_outside_tags
from taugate.ingestion.importers.spreadsheet_source import (
    SHEETS,
    cell_texts,
    check_area,
    count_empty_formulas,
    open_document_texts,
)
from taugate.ingestion.importers.table_rows import table_of, table_to_documents
from taugate.ingestion.importers.word_parts import drawing_lines
from taugate.ingestion.parsed import ParsedDocument, ParsedFile, TextBuilder, UnreadableFile, with_unique_keys

Row = Sequence[object]

_KIND = "a spreadsheet"
_COMMENTS = r"xl/(?:comments/?|threadedComments/threadedComment)\w*\.xml"
_DRAWN = r"xl/(?:drawings/drawing|diagrams/data|charts/chart)\w*\.xml"
_OPEN_DOCUMENT = "content.xml"
_USUAL_NAME = re.compile(r"[^\W\d]+ ?\d*")  # default names such as Sheet1 and Tabelle 1
_NO_TEXT = r"<(?P<tag>authors|mc:Fallback|c:f|c:formatCode|xdr:from|xdr:to|a:ext)\b[^<>]*(?<!/)>.*?</(?P=tag)>"


def parse_spreadsheet(raw: bytes) -> ParsedFile:
    """Read one document per row of all sheets, even hidden ones; comments and text in drawings are another document.

    A sheet may hold several tables, with empty rows between them. The first full row of a table names its columns. A
    sheet without a table is one document. Formulas count by their last value.

    Raises:
        UnreadableFile: If the file is damaged, encrypted or holds no text.
    """
    package = Package(raw, _KIND) if raw.startswith(b"PK") else None
    if package:
        check_area(package)
    try:
        with calamine.CalamineWorkbook.from_filelike(io.BytesIO(raw)) as workbook:
            sheets = [(name, _rows(workbook.get_sheet_by_name(name))) for name in _sheet_names(workbook)]
    except calamine.PasswordError as error:
        raise UnreadableFile("is encrypted; save it without a password") from error
    except (calamine.CalamineError, OSError, ValueError, OverflowError) as error:
        raise UnreadableFile(f"is not {_KIND}, or is damaged") from error
    reading = _Reading()
    filled = [(name, rows) for name, rows in sheets if any(map(_is_filled, rows))]
    for name, rows in filled:
        named = len(filled) > 1 or not _USUAL_NAME.fullmatch(name)
        for document in reading.documents(name, rows):
            title = document.title or (name if named else "")
            key = "/".join(filter(None, [name if len(filled) > 1 else "", document.key]))
            reading.parsed.append(dataclasses.replace(document, title=title, key=key))
    if package:
        reading.parsed += _beside(package)
        if count := count_empty_formulas(package):
            reading.notes.append(f"has {count} formulas without a value; save it once in a spreadsheet program")
        reading.notes += package.notes
    if not reading.parsed:
        raise UnreadableFile("holds no text")
    texts = (_source_texts(package) if package else None) or (_line(row) for _, rows in sheets for row in rows)
    # Names of columns are counted with the values that they name.
    names = "\n".join(reading.column_names)
    return ParsedFile(with_unique_keys(reading.parsed), "\n".join(texts), tuple(dict.fromkeys(reading.notes)), names)


def _sheet_names(workbook: calamine.CalamineWorkbook) -> list[str]:
    kinds = (calamine.SheetTypeEnum.WorkSheet, calamine.SheetTypeEnum.MacroSheet)
    return [sheet.name for sheet in workbook.sheets_metadata if sheet.typ in kinds]


def _rows(sheet: calamine.CalamineSheet) -> list[list[object]]:
    """Return the cells of a sheet; each row of vertically merged cells has their value."""
    rows: list[list[object]] = [[_value(cell) for cell in row] for row in sheet.to_python(skip_empty_area=False)]
    for (top, left), (bottom, _) in sheet.merged_cell_ranges or []:
        for row in rows[top + 1 : bottom + 1]:
            if top < len(rows) and left < len(row) and row[left] == "":
                row[left] = rows[top][left]
    return rows


def _value(cell: object) -> object:
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return str(cell) if isinstance(cell, datetime.timedelta) else cell


def _is_filled(row: Row) -> bool:
    return any(not isinstance(cell, str) or cell.strip() for cell in row)


class _Reading:
    """Results gathered from the sheets of a file.

    Attributes:
        parsed: Documents of all sheets.
        notes: Notes of `ParsedFile`.
        column_names: Names of the columns of all tables.
    """

    def __init__(self) -> None:
        self.parsed: list[ParsedDocument] = []
        self.notes: list[str] = []
        self.column_names: list[str] = []

    def documents(self, name: str, rows: Sequence[Row]) -> Iterator[ParsedDocument]:
        """Yield the documents of a sheet.

        Args:
            name: Name of the sheet.
            rows: Rows of the sheet.
        """
        tables = _tables(rows)
        for number, cells in enumerate(tables, start=1):
            prefix = f"table {number}/" if len(tables) > 1 else ""
            for document in self._of_table(name, cells):
                yield dataclasses.replace(document, key=f"{prefix}{document.key}")

    def _of_table(self, name: str, cells: Sequence[Row]) -> list[ParsedDocument]:
        try:
            table = table_of(cells)
            documents = table_to_documents(table, table.rows)
        except UnreadableFile:  # one row, or one column of text
            builder = TextBuilder()
            builder.add("\n".join(map(_line, cells)), "prose")
            return [builder.document("", "1")]
        self.notes += [f"{note} (sheet {name})" for note in table.notes]
        if table.header is not None:
            self.column_names += table.names
        return documents


def _tables(rows: Sequence[Row]) -> list[list[Row]]:
    """Divide a sheet at its empty rows, unless the rows after one fill the same columns as those before."""
    blocks: list[list[Row]] = [[]]
    for row in rows:
        if _is_filled(row):
            blocks[-1].append(row)
        elif blocks[-1]:
            blocks.append([])
    tables: list[list[Row]] = []
    for block in filter(None, blocks):
        is_title_above = bool(tables) and all(len(_columns(row)) == 1 for row in tables[-1]) and len(tables[-1]) < 3
        if tables and (is_title_above or len(block) == 1 or _columns(block[0]) == _columns(tables[-1][-1])):
            tables[-1] += block
        else:
            tables.append(block)
    return tables


def _columns(row: Row) -> set[int]:
    return {number for number, cell in enumerate(row) if _is_filled([cell])}


def _line(row: Row) -> str:
    return " | ".join(str(cell) for cell in row if _is_filled([cell]))


def _beside(package: Package) -> list[ParsedDocument]:
    """Return the comments and the text of drawings as one document; empty if a file has neither."""
    builder = TextBuilder()
    for name in package.matching(_COMMENTS):
        for comment in package.xml(name).iter("{*}comment", "{*}threadedComment"):
            builder.add("".join(comment.itertext("{*}t", "{*}text")), "prose")
    for name in package.matching(_DRAWN):
        for line in drawing_lines(package.xml(name)):
            builder.add(line, "prose")
    if _OPEN_DOCUMENT in package.names:
        for element in package.xml(_OPEN_DOCUMENT).iter("{*}annotation", "{*}text-box", "{*}custom-shape"):
            builder.add("\n".join("".join(line.itertext()) for line in element.iterchildren("{*}p")), "prose")
    document = builder.document("", "comments")
    return [document] if document.text else []


def _source_texts(package: Package) -> list[str] | None:
    """Return the text of the cells, comments and drawings; None for files whose cells are not XML."""
    if _OPEN_DOCUMENT in package.names:
        return open_document_texts(package.read(_OPEN_DOCUMENT).decode("utf-8", "replace"))
    if not package.matching(SHEETS):
        return None
    beside = [package.read(name) for name in package.matching(f"{_COMMENTS}|{_DRAWN}")]
    return [*cell_texts(package), text_outside_tags(beside, _NO_TEXT)]
