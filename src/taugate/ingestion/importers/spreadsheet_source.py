"""Words of a spreadsheet (.xlsx) from a search for tags, for comparison with its documents."""

import html
import re
from collections.abc import Iterator

from taugate.ingestion.importers.office_package import Package, text_outside_tags
from taugate.ingestion.importers.word_share import count_words
from taugate.ingestion.parsed import UnreadableFile

SHEETS = r"xl/worksheets/[^/]+\.xml"
_STRINGS = r"xl/sharedStrings\.xml"
_ITEM = re.compile(r"<(?:\w+:)?si>(.*?)</(?:\w+:)?si>", re.DOTALL)
_TEXT = re.compile(r"<(?:\w+:)?t(?:\s[^>]*)?>([^<]*)</(?:\w+:)?t>")
_PHONETIC = re.compile(r"<(?:\w+:)?rPh\b.*?</(?:\w+:)?rPh>", re.DOTALL)
_CELL = re.compile(r"<(?:\w+:)?c(?:\s([^>]*[^/>]))?>(.*?)</(?:\w+:)?c>", re.DOTALL)
_PLACE = re.compile(r'<(?:\w+:)?c\s(?:[^>]*?\s)?r="([A-Z]{1,3})(\d{1,7})"[^>]*[^/>]>')
_MAX_CELLS = 20_000_000  # of a sheet, empty ones too: 16 bytes each in calamine
_VALUE = re.compile(r"<(?:\w+:)?v(?:\s[^>]*)?>([^<]*)</(?:\w+:)?v>")
_ANNOTATION = re.compile(r"<office:annotation\b.*?</office:annotation>", re.DOTALL)
_ERROR = re.compile(r"#(?:N/A|DIV/0!|[A-Z]+[!?])|Err:\d+")  # of a formula
_PARAGRAPH = re.compile(r"<text:p(?:\s[^>]*[^/])?>(.*?)</text:p>", re.DOTALL)
_EMPTY_FORMULA = re.compile(
    r"<(?:\w+:)?f\b[^>]*(?:/>|>[^<]*</(?:\w+:)?f>)\s*(?:<(?:\w+:)?v\s*(?:/>|></(?:\w+:)?v>))?\s*</"
)


def cell_texts(package: Package) -> Iterator[str]:
    """Yield the text of each cell, and shared strings that no cell shows.

    Numbers that a format shows as a date or time are left out: in the file they are days since 1900.
    """
    strings = [
        html.unescape("".join(_TEXT.findall(_PHONETIC.sub("", item))))
        for name in package.matching(_STRINGS)
        for item in _ITEM.findall(_read(package, name))
    ]
    # Text in the part that belongs to no string, as the part is damaged.
    for name in package.matching(_STRINGS):
        words = count_words([text_outside_tags([package.read(name)], r"<(?:\w+:)?rPh\b.*?</(?:\w+:)?rPh>")])
        yield " ".join((words - count_words(strings)).elements())
    dates = _date_styles(package)
    unused = set(range(len(strings)))
    for name in package.matching(SHEETS):
        for attributes, content in _CELL.findall(_read(package, name)):
            kind = _attribute(attributes, "t")
            value = next(iter(_VALUE.findall(content)), "")
            if kind == "s" and value.isdigit() and int(value) < len(strings):
                unused.discard(int(value))
                yield strings[int(value)]
            elif kind == "inlineStr":
                yield html.unescape("".join(_TEXT.findall(_PHONETIC.sub("", content))))
            elif kind == "str":
                yield html.unescape(value)
            elif kind in {"", "n"} and value and _attribute(attributes, "s") not in dates:
                yield _shown(value)
    yield from (strings[number] for number in sorted(unused))


def open_document_texts(content: str) -> list[str]:
    """Return the text of the cells, comments and shapes of an .ods file.

    Cells of numbers and dates are left out, as their text depends on the country.

    Args:
        content: Text of the file's content.xml.
    """
    body = content[content.find("<office:body") :]
    typed = re.compile(
        r'<table:table-cell\b[^>]*office:value-type="(?:float|percentage|currency|date|time|boolean)"[^>]*>'
        r"(.*?)</table:table-cell>",
        re.DOTALL,
    )
    comments = [comment for cell in typed.findall(body) for comment in _ANNOTATION.findall(cell)]
    texts = [
        *_PARAGRAPH.findall(typed.sub("", body)),
        *(text for comment in comments for text in _PARAGRAPH.findall(comment)),
    ]
    plain = (html.unescape(re.sub("<[^>]*>", " ", text)) for text in texts)
    return [text for text in plain if not _ERROR.fullmatch(text.strip())]


def check_area(package: Package) -> None:
    """Check that the area of cells is small enough for the memory.

    Raises:
        UnreadableFile: If a cell is so far from the others that the cells between them do not fit.
    """
    for name in package.matching(SHEETS):
        columns = rows = 0
        for letters, row in _PLACE.findall(_read(package, name)):
            columns, rows = max(columns, _column(letters)), max(rows, int(row))
        if columns * rows > _MAX_CELLS:
            raise UnreadableFile(f"has {rows} rows and {columns} columns, most of them empty; delete the distant cell")


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - 64
    return number


def count_empty_formulas(package: Package) -> int:
    """Return the number of formulas without a value, written by a program that cannot calculate."""
    return sum(len(_EMPTY_FORMULA.findall(_read(package, name))) for name in package.matching(SHEETS))


def _read(package: Package, name: str) -> str:
    return package.read(name).decode("utf-8", "replace")


def _attribute(attributes: str, name: str) -> str:
    value = re.search(rf'(?:^|\s){name}="([^"]*)"', attributes or "")
    return value[1] if value else ""


def _date_styles(package: Package) -> set[str]:
    """Return the styles, by number, that show a number as a date or time."""
    if "xl/styles.xml" not in package.names:
        return set()
    styles = _read(package, "xl/styles.xml")
    formats = {
        _attribute(attributes, "numFmtId"): re.sub(
            r'"[^"]*"|\\.|\[[^\]]*\]', "", html.unescape(_attribute(attributes, "formatCode"))
        )
        for attributes in re.findall(r"<(?:\w+:)?numFmt\s([^>]*)", styles)
    }
    dates = {str(number) for number in [*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)]}
    dates |= {number for number, code in formats.items() if re.search("[ymdhs]", code, re.IGNORECASE)}
    used = re.search(r"<(?:\w+:)?cellXfs\b.*?</(?:\w+:)?cellXfs>", styles, re.DOTALL)
    numbers = [
        _attribute(attributes, "numFmtId")
        for attributes in re.findall(r"<(?:\w+:)?xf\s([^>]*)", used[0] if used else "")
    ]
    return {str(position) for position, number in enumerate(numbers) if number in dates}


def _shown(value: str) -> str:
    """Return a number as it is written in documents."""
    try:
        number = float(value)
    except ValueError:
        return value
    return str(int(number)) if number.is_integer() else str(number)
