"""Words of a spreadsheet from a search for tags, for comparison with its documents."""

import html
import re
from collections.abc import Iterator

from taugate.ingestion.importers.office_package import Package, text_outside_tags
from taugate.ingestion.importers.sheet_cells import SHEETS, STRINGS, XmlCells, find_cells, read_part
from taugate.ingestion.importers.word_share import count_words
from taugate.ingestion.parsed import UnreadableFile

_MAX_CELLS = 20_000_000  # of a sheet, empty ones too: 16 bytes each in calamine
_PARAGRAPH = re.compile(r"<text:p(?:\s[^<>]*[^/<>])?>(.*?)</text:p>", re.DOTALL)
_EMPTY_FORMULA = re.compile(
    r"<(?:\w+:)?f\b[^<>]*(?:/>|>[^<]*</(?:\w+:)?f>)\s*(?:<(?:\w+:)?v\s*(?:/>|></(?:\w+:)?v>))?\s*</"
)


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
    """Return the text of the cells, comments and shapes of an .ods file.

    Args:
        content: Text of the file's content.xml.
    """
    body = content[content.find("<office:body") :]
    return [html.unescape(re.sub("<[^<>]*>", " ", text)) for text in _PARAGRAPH.findall(body)]


def check_area(package: Package) -> None:
    """Check that the area of cells is small enough for the memory.

    Raises:
        UnreadableFile: If a cell is so far from the others that the cells between them do not fit.
    """
    for name in package.matching(SHEETS):
        columns = rows = 0
        for (row, column), _, _ in find_cells(read_part(package, name)):
            columns, rows = max(columns, column + 1), max(rows, row + 1)
        if columns * rows > _MAX_CELLS:
            raise UnreadableFile(f"has {rows} rows and {columns} columns, most of them empty; delete the distant cell")


def count_empty_formulas(package: Package) -> int:
    """Return the number of formulas without a value, written by a program that cannot calculate."""
    return sum(len(_EMPTY_FORMULA.findall(read_part(package, name))) for name in package.matching(SHEETS))
