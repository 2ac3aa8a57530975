"""Cells of a spreadsheet as the sheet shows them: in .xlsx by their number formats, in .ods as the text in the file."""

import html
import re
from collections.abc import Iterator
from functools import cached_property

from taugate.ingestion.importers.number_formats import show_number, show_text
from taugate.ingestion.importers.office_package import Package

SHEETS = r"xl/worksheets/[^/]+\.xml"
STRINGS = r"xl/sharedStrings\.xml"
Place = tuple[int, int]
"""A row and a column, from 0."""

_ITEM = re.compile(r"<(?:\w+:)?si>(.*?)</(?:\w+:)?si>", re.DOTALL)
_TEXT = re.compile(r"<(?:\w+:)?t(?:\s[^<>]*)?>([^<]*)</(?:\w+:)?t>")
_PHONETIC = re.compile(r"<(?:\w+:)?rPh\b.*?</(?:\w+:)?rPh>", re.DOTALL)
_CELL = re.compile(r"<(?:\w+:)?(?:(row)\b([^<>]*)|c\b([^<>]*?)(?:/|>((?:[^<]+|<(?!/?(?:\w+:)?c\b))*+)</(?:\w+:)?c))>")
_PLACE = re.compile(r"""\sr=["']([A-Z]{0,3})(\d{1,7})["']""")
_KIND = re.compile(r"""\s([ts])\s*=\s*["']([^"']*)""")
_VALUE = re.compile(r"<(?:\w+:)?v(?:\s[^<>]*)?>([^<]*)</(?:\w+:)?v>")
# Formats that files name by a number; for those that depend on the country, the form that the standard has.
_FROM_0 = (
    "General|0|0.00|#,##0|#,##0.00|$#,##0;($#,##0)|$#,##0;($#,##0)|$#,##0.00;($#,##0.00)|$#,##0.00;($#,##0.00)|0%|0.00%|"
    "0.00E+00|# ?/?|# ??/??|m/d/yyyy|d-mmm-yy|d-mmm|mmm-yy|h:mm AM/PM|h:mm:ss AM/PM|h:mm|h:mm:ss|m/d/yyyy h:mm"
)
_FROM_37 = (
    "#,##0;(#,##0)|#,##0;(#,##0)|#,##0.00;(#,##0.00)|#,##0.00;(#,##0.00)|#,##0;(#,##0);-|$#,##0;$(#,##0);$-|"
    "#,##0.00;(#,##0.00);-|$#,##0.00;$(#,##0.00);$-|mm:ss|[h]:mm:ss|mm:ss.0|##0.0E+0|@"
)
_CODES = dict.fromkeys([*range(27, 37), *range(50, 59)], "m/d/yyyy") | dict.fromkeys(range(32, 36), "h:mm:ss")
_CODES |= [*enumerate(_FROM_0.split("|")), *enumerate(_FROM_37.split("|"), 37)]


class XmlCells:
    """The cells of an .xlsx file, found by a search for tags.

    Attributes:
        unused: Shared strings that no cell has shown yet, by number.
    """

    def __init__(self, package: Package) -> None:
        self._package = package
        self.unused = dict(enumerate(self.strings))

    def shown(self, part: str) -> Iterator[tuple[Place, str, bool]]:
        """Yield the place of each cell with a value, the shown text, and whether a format makes another text of it.

        Args:
            part: Name of the part that holds the sheet.
        """
        for place, attributes, content in find_cells(read_part(self._package, part)):
            named = dict(_KIND.findall(attributes))
            kind, style = named.get("t", ""), named.get("s", "")
            code = self._codes[int(style)] if style.isdigit() and int(style) < len(self._codes) else "General"
            value = html.unescape(match[1]) if (match := _VALUE.search(content)) else ""
            if kind == "s" and value.isdigit():
                self.unused.pop(int(value), None)
                value = self.strings[int(value)] if int(value) < len(self.strings) else ""
            elif kind == "inlineStr":
                value = _string(content)
            if kind in {"s", "inlineStr", "str"}:
                text = show_text(value, code)
                yield place, text, text != value
            elif kind == "b":
                yield place, "TRUE" if value == "1" else "FALSE", True
            elif value:
                yield place, self._number(value, code) if kind in {"", "n"} else value, kind != "d"

    def _number(self, value: str, code: str) -> str:
        try:
            return show_number(float(value), code, from_1904=self._from_1904)
        except (ValueError, OverflowError):  # not a number
            return value

    @cached_property
    def strings(self) -> list[str]:
        """The shared strings."""
        parts = self._package.matching(STRINGS)
        return [_string(item) for part in parts for item in _ITEM.findall(read_part(self._package, part))]

    @cached_property
    def sheets(self) -> dict[str, str]:
        """The part of each sheet, by the name of the sheet."""
        parts = self._package.related(self._package.main_part())
        tags = re.findall(r"<(?:\w+:)?sheet\b([^<>]*)>", self._workbook)
        ids = {html.unescape(attribute(tag, "name")): attribute(tag, r"\w+:id") for tag in tags}
        return {name: parts[identifier][1] for name, identifier in ids.items() if identifier in parts}

    @cached_property
    def _workbook(self) -> str:
        return read_part(self._package, self._package.main_part())

    @cached_property
    def _from_1904(self) -> bool:
        return bool(re.search(r"""\sdate1904=["'](?:1|true)["']""", self._workbook))

    @cached_property
    def _codes(self) -> list[str]:
        """The format of each style."""
        styles = read_part(self._package, "xl/styles.xml") if "xl/styles.xml" in self._package.names else ""
        own = reversed(re.findall(r"<(?:\w+:)?numFmt\s([^<>]*)", styles))  # the first counts
        codes = {attribute(tag, "numFmtId"): html.unescape(attribute(tag, "formatCode")) for tag in own}
        known = {str(number): code for number, code in _CODES.items()} | codes
        used = re.search(r"<(?:\w+:)?cellXfs\b.*?</(?:\w+:)?cellXfs>", styles, re.DOTALL)
        tags = re.findall(r"<(?:\w+:)?xf\b([^<>]*)", used[0] if used else "")
        return [known.get(attribute(tag, "numFmtId"), "General") for tag in tags]


def find_cells(xml: str) -> Iterator[tuple[Place, str, str]]:
    """Yield the place of each cell of a sheet, its attributes and its content; a place may be left to the order."""
    row = column = -1
    for is_row, of_row, of_cell, content in (match.groups("") for match in _CELL.finditer(xml)):
        letters, number = match.groups() if (match := _PLACE.search(of_row or of_cell)) else ("", "")
        if is_row:
            row, column = int(number) - 1 if number else row + 1, -1
            continue
        row = int(number) - 1 if number else row
        column = column + 1 if not letters else _column(letters) - 1
        yield (row, column), of_cell, content


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - 64
    return number


def _string(xml: str) -> str:
    return html.unescape("".join(_TEXT.findall(_PHONETIC.sub("", xml))))


def attribute(tag: str, name: str) -> str:
    """Return an attribute of a tag, "" if it is missing."""
    value = re.search(rf"""(?:^|\s){name}\s*=\s*(["'])(.*?)\1""", tag, re.DOTALL)
    return value[2] if value else ""


def read_part(package: Package, name: str) -> str:
    """Return a part as text."""
    return package.read(name).decode("utf-8", "replace")
