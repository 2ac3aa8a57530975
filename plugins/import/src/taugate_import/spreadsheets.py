"""Spreadsheets (.xlsx, .xlsm, .xlsb, .xls, .ods) as records, with calamine, which reads all of them.

calamine reads 100,000 rows in 1.5 s and openpyxl in 9 s (docs/dependencies.md). As calamine ignores comments and
drawings, they are read here.
"""

import dataclasses
import datetime
import html
import io
import re
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import Any

import python_calamine as calamine

from taugate.data.parsed import ParsedDocument, ParsedFile, TextBuilder, UnreadableFile, with_unique_keys
from taugate_import.office_package import Package, text_outside_tags
from taugate_import.sheet_cells import SHEETS, STRINGS, Place, XmlCells, find_cells, read_part, show_number
from taugate_import.table_rows import cell_text, count_filled, is_name, table_of, table_to_documents
from taugate_import.values import TypedCell, scalar_of
from taugate_import.word import drawing_lines
from taugate_import.word_share import count_words

Row = Sequence[object]

_MAX_CELLS = 20_000_000  # of a sheet, empty ones too: 16 bytes each in calamine
_PARAGRAPH = re.compile(r"<text:p(?:\s[^<>]*[^/<>])?>(.*?)</text:p>", re.DOTALL)
_EMPTY_FORMULA = re.compile(
    r"<(?:\w+:)?f\b[^<>]*(?:/>|>[^<]*</(?:\w+:)?f>)\s*(?:<(?:\w+:)?v\s*(?:/>|></(?:\w+:)?v>))?\s*</"
)
Element = Any  # lxml has no public type for an element

_KIND = "a spreadsheet"
_COMMENTS = r"xl/(?:comments/?|threadedComments/threadedComment)\w*\.xml"
_DRAWN = r"xl/(?:drawings/drawing|diagrams/data|charts/chart)\w*\.xml"
_OPEN_DOCUMENT = "content.xml"
_NAME = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}name"
_USUAL_NAME = re.compile(r"[^\W\d]+ ?\d*")  # default names such as Sheet1 and Tabelle 1
_NO_TEXT = r"<(?P<tag>authors|mc:Fallback|c:f|c:formatCode|xdr:from|xdr:to|a:ext)\b[^<>]*(?<!/)>.*?</(?P=tag)>"


def join_header_rows(rows: MutableSequence[Row], merged: Sequence[tuple[Place, Place]]) -> None:
    """Join the rows of each header that has merged cells: `Pressure` above `lowest` becomes `Pressure lowest`."""
    starts: dict[int, list[tuple[Place, Place]]] = {}
    for area in merged:
        starts.setdefault(area[0][0], []).append(area)
    for top in sorted(starts, reverse=True):
        if _begins_table(rows, top) and (end := _end(rows, top, starts)) > top:
            rows[top : end + 1] = [_joined(rows[top : end + 1], top, starts)]


def _begins_table(rows: Sequence[Row], top: int) -> bool:
    """Return whether a row is the first of a table; there may be a title above it, which is one cell."""
    filled = [[place for place, cell in enumerate(row) if cell_text(cell)] for row in rows[max(top - 1, 0) : top + 2]]
    above, first, below = ([] if top == 0 else filled.pop(0)), filled[0], [*filled[1:], []][0]
    is_title = len(first) == 1 and first[:1] <= below[:1]
    return len(above) < 2 and bool(first) and not is_title


def _end(rows: Sequence[Row], top: int, starts: Mapping[int, Sequence[tuple[Place, Place]]]) -> int:
    """Return the last row of the header that begins at a row."""
    end = row = top
    while row <= end:
        for (_, left), (bottom, right) in starts.get(row, ()):
            below = rows[bottom + 1][left : right + 1] if right > left and bottom + 1 < len(rows) else ()
            end = max(end, bottom + (count_filled(below) > 1 and all(map(is_name, below))))
        row += 1
    last, following = rows[end], rows[end + 1] if end + 1 < len(rows) else ()
    if not following or not all(map(is_name, filter(cell_text, last))):
        return top
    is_covered = any(bottom == end > row for row in range(top, end) for _, (bottom, _) in starts.get(row, ()))
    has_gap = any(cell_text(above) and not cell_text(cell) for above, cell in zip(rows[top], last, strict=False))
    is_unlike = any(cell_text(cell) and not is_name(below) for cell, below in zip(last, following, strict=False))
    return end if is_covered or has_gap or is_unlike else top


def _joined(header: Sequence[Row], top: int, starts: Mapping[int, Sequence[tuple[Place, Place]]]) -> list[str]:
    names = [[cell_text(cell) for cell in row] for row in header]
    for row in range(top, top + len(header)):
        for (_, left), (bottom, right) in starts.get(row, ()):
            for line in names[row - top : bottom + 1 - top]:
                line[left : right + 1] = [names[row - top][left]] * len(line[left : right + 1])
    return [" ".join(dict.fromkeys(filter(None, column))) for column in zip(*names, strict=True)]


def cell_texts(package: Package, cells: XmlCells) -> Iterator[str]:
    """Yield the text of each cell as the sheet shows it, and shared strings that no cell shows."""
    # Text in the part that belongs to no string, as the part is damaged.
    for name in package.matching(STRINGS):
        words = count_words([text_outside_tags([package.read(name)], r"<(?:\w+:)?rPh\b.*?</(?:\w+:)?rPh>")])
        yield " ".join((words - count_words(cells.strings)).elements())
    for name in package.matching(SHEETS):
        yield from (text for _, text, _ in cells.shown(name))
    yield from cells.unused.values()


def open_document_texts(content: str) -> list[str]:
    """Return the text of the cells, comments and shapes of an .ods file."""
    body = content[content.find("<office:body") :]
    return [html.unescape(re.sub("<[^<>]*>", " ", text)) for text in _PARAGRAPH.findall(body)]


def check_area(package: Package) -> None:
    """Check that the area of cells is small enough for the memory."""
    for name in package.matching(SHEETS):
        columns = rows = 0
        for (row, column), _, _ in find_cells(read_part(package, name)):
            columns, rows = max(columns, column + 1), max(rows, row + 1)
        if columns * rows > _MAX_CELLS:
            raise UnreadableFile(f"has {rows} rows and {columns} columns, most of them empty; delete the distant cell")


def count_empty_formulas(package: Package) -> int:
    """Return the number of formulas without a value, written by a program that cannot calculate."""
    return sum(len(_EMPTY_FORMULA.findall(read_part(package, name))) for name in package.matching(SHEETS))


def parse_spreadsheet(raw: bytes) -> ParsedFile:
    """Read one document per row of all sheets, even hidden ones; comments and text in drawings are another document.

    A sheet may hold several tables, with empty rows between them. The first full row of a table names its columns. A
    sheet without a table is one document. Formulas count by their last value.
    """
    package = Package(raw, _KIND) if raw.startswith(b"PK") else None
    if package:
        check_area(package)
    is_xml = package is not None and bool(package.matching(SHEETS))
    cells = XmlCells(package) if package and is_xml else None
    tables = {}
    if package and _OPEN_DOCUMENT in package.names:
        tables = {table.get(_NAME): table for table in package.xml(_OPEN_DOCUMENT).iter("{*}table")}
    try:
        with calamine.CalamineWorkbook.from_filelike(io.BytesIO(raw)) as workbook:
            sheets = [
                (name, _rows(workbook.get_sheet_by_name(name), cells, tables.get(name)))
                for name in _sheet_names(workbook)
            ]
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
    texts = _source_texts(package, cells) if package else None
    texts = texts or [_line(row) for _, rows in sheets for row in rows]
    # Names of columns are counted with the values that they name.
    names = "\n".join(reading.column_names)
    return ParsedFile(with_unique_keys(reading.parsed), "\n".join(texts), tuple(dict.fromkeys(reading.notes)), names)


def _sheet_names(workbook: calamine.CalamineWorkbook) -> list[str]:
    kinds = (calamine.SheetTypeEnum.WorkSheet, calamine.SheetTypeEnum.MacroSheet)
    return [sheet.name for sheet in workbook.sheets_metadata if sheet.typ in kinds]


def _rows(sheet: calamine.CalamineSheet, cells: XmlCells | None, table: Element) -> list[Sequence[object]]:
    """Return the cells of a sheet, each with the text that it shows; a header of several rows becomes one.

    Each row of vertically merged cells has their value.
    """
    rows = [[_value(cell) for cell in row] for row in sheet.to_python(skip_empty_area=False)]
    merged = sheet.merged_cell_ranges or []
    if cells and sheet.name in cells.sheets:
        for (row, column), text, is_formatted in cells.shown(cells.sheets[sheet.name]):
            if is_formatted and row < len(rows) and column < len(rows[row]):
                rows[row][column] = _shown(rows[row][column], text)
    if table is not None:
        merged = _show_open_document(rows, table)
    for (top, left), (bottom, _) in merged:
        for line in rows[top + 1 : bottom + 1]:
            if left < len(line) and line[left] == "":
                line[left] = rows[top][left]
    joined: list[Sequence[object]] = [*rows]
    join_header_rows(joined, merged)
    return joined


def _value(cell: object) -> object:
    """Return a number with the 15 digits that spreadsheet programs keep, a duration as text, others as they are."""
    if isinstance(cell, float):
        number = float(f"{cell:.15g}")
        return int(number) if number.is_integer() and abs(number) < 1 << 53 else number
    if isinstance(cell, datetime.timedelta):
        return show_number(cell / datetime.timedelta(days=1), "[h]:mm:ss")
    return cell


def _shown(value: object, text: str) -> object:
    """Return a value with the text that the sheet shows; a duration or an error is a text."""
    if isinstance(value, str):
        return text if value else TypedCell(None, text)
    return value if cell_text(value) == text else TypedCell(scalar_of(value), text)


def _show_open_document(rows: list[list[object]], table: Element) -> list[tuple[Place, Place]]:
    """Put the text that a sheet of .ods shows in the place of its values, and return its merged cells."""
    merged = []
    row = 0
    for element in table.iter("{*}table-row"):
        row_copies, column = _number(element, "number-rows-repeated"), 0
        for cell in element.iterchildren("{*}table-cell", "{*}covered-table-cell"):
            copies = _number(cell, "number-columns-repeated")
            lines = ["".join(paragraph.itertext()) for paragraph in cell.iterchildren("{*}p")]
            kinds = [value for name, value in cell.items() if name.endswith("}value-type")]
            if lines and kinds and ("string" not in kinds or "error" in kinds):
                for values in rows[row : row + row_copies]:
                    shown = [_shown(value, "\n".join(lines)) for value in values[column : column + copies]]
                    values[column : column + copies] = shown
            last = row + _number(cell, "number-rows-spanned") - 1, column + _number(cell, "number-columns-spanned") - 1
            if last != (row, column):
                merged.append(((row, column), last))
            column += copies
        row += row_copies
    return merged


def _number(element: Element, name: str) -> int:
    return int(next((value for key, value in element.items() if key.endswith(f"}}{name}")), "1"))


def _is_filled(row: Row) -> bool:
    return count_filled(row) > 0


class _Reading:
    """Results gathered from the sheets of a file."""

    def __init__(self) -> None:
        self.parsed: list[ParsedDocument] = []
        self.notes: list[str] = []
        self.column_names: list[str] = []

    def documents(self, name: str, rows: Sequence[Row]) -> Iterator[ParsedDocument]:
        """Yield the documents of a sheet."""
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
    return " | ".join(text for cell in row if (text := cell_text(cell)))


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


def _source_texts(package: Package, cells: XmlCells | None) -> list[str] | None:
    """Return the text of the cells, comments and drawings; None for files whose cells are not XML."""
    if _OPEN_DOCUMENT in package.names:
        return open_document_texts(package.read(_OPEN_DOCUMENT).decode("utf-8", "replace"))
    if cells is None:
        return None
    beside = [package.read(name) for name in package.matching(f"{_COMMENTS}|{_DRAWN}")]
    return [*cell_texts(package, cells), text_outside_tags(beside, _NO_TEXT)]
