"""Cells of a spreadsheet as the sheet shows them, by format codes such as `0.00" bar"` and `[h]:mm`."""

import html
import operator
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise

from taugate_import.office_package import Package

_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|(?P<space>_.)|\*.|\[(?P<elapsed>h+|m+|s+)\]'
    r"|\[(?P<condition>(?:<>|[<>]?=?)\s*-?\d+(?:\.\d+)?)\]|\[\$(?P<currency>[^\]-]*)[^\]]*\]|\[[^\]]*\]"
    r"|(?P<general>General)|(?P<half>AM/PM|A/P)|(?P<exponent>E[+-])|(?P<time>y+|m+|d+|h+|s+)|(?P<digit>[0#?])|(?P<other>.)",
    re.IGNORECASE | re.DOTALL,
)
_FRACTION = re.compile(r"([0#?]+ +)?([0#?]+) */ *([0#?]+|\d+)")
_TESTS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "<>": operator.ne}
_USUAL_TESTS = (), ("",), (">=0", "<0"), (">0", "<0", "")  # of as many sections
_DIRECTIVES = {"y": "yyY", "m": "mmbB", "d": "ddaA", "h": "H", "minute": "M", "s": "S"}  # by number of letters
_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)
_TEXT, _POINT, _COMMA = ("other", "@"), ("other", "."), ("other", ",")

Section = tuple[tuple[str, str], ...]
"""Parts of a format: the kind of each, which is a group of the pattern above, and its text."""

SHEETS = r"xl/worksheets/[^/]+\.xml"
STRINGS = r"xl/sharedStrings\.xml"
Place = tuple[int, int]
"""A row and a column, from 0."""

_ITEM = re.compile(r"<(?:\w+:)?si>(.*?)</(?:\w+:)?si>", re.DOTALL)
_TEXT_TAG = re.compile(r"<(?:\w+:)?t(?:\s[^<>]*)?>([^<]*)</(?:\w+:)?t>")
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


@lru_cache(maxsize=1 << 17)  # cells are read twice, and values repeat
def show_number(value: float, code: str, *, from_1904: bool = False) -> str:
    """Return a number as a format shows it.

    Args:
        value: A number; for a date, days since 1900.
    """
    if code == "General":
        return show_general(value)
    sections = [section for section in _sections(code)[:3] if _TEXT not in section]
    tests = [next((text for kind, text in section if kind == "condition"), "") for section in sections]
    if not any(tests):
        tests = list(_USUAL_TESTS[len(sections)])
    elif len(sections) == 3:
        tests[1] = tests[1] or "<0"
    for section, test in zip(sections, tests, strict=True):
        limit = test.lstrip("<>= ")
        sign = test.removesuffix(limit).strip()
        if not test or _TESTS[sign](value, float(limit)):
            shown = _shown(section, abs(value), 1462 if from_1904 else 0).strip()
            is_negative = value < 0 and re.search("[1-9]", shown) and not (sign[:1] == "<" and float(limit) <= 0)
            return f"-{shown}" if is_negative else shown
    return show_general(value)


def show_text(text: str, code: str) -> str:
    """Return a text as a format shows it, such as `"No. "@`; a format without a section for text does not change it."""
    sections = _sections(code)
    if _TEXT not in sections[-1] and len(sections) < 4:
        return text
    return "".join(text if part == _TEXT else _literal(part) for part in sections[-1])


def show_general(value: float) -> str:
    """Return a number with the 15 digits that spreadsheet programs keep, as in a cell without a format."""
    if float(value).is_integer() and abs(value) < 1 << 53:
        return str(int(value))
    text = f"{value:.15G}"
    plain = f"{Decimal(text):f}" if "E" in text and 1e-9 <= abs(value) < 1e15 else text
    return plain if len(plain.partition(".")[2]) <= 15 else text


@lru_cache(maxsize=1024)
def _sections(code: str) -> tuple[Section, ...]:
    sections: list[list[tuple[str, str]]] = [[]]
    for match in _TOKEN.finditer(code):
        if match[0] == ";":
            sections.append([])
        elif kind := match.lastgroup:
            sections[-1].append((kind, match[kind]))
    for section in sections:
        units = [i for i, (kind, _) in enumerate(section) if kind in {"time", "elapsed"}]
        for i, j in pairwise(units):  # m is a minute after h and before s
            letters = (section[i][1][0] + section[j][1][0]).lower()
            if letters in {"hm", "ms"} and section[minute := j if letters == "hm" else i][0] == "time":
                section[minute] = ("minute", section[minute][1])
    return tuple(map(tuple, sections))


def _literal(part: tuple[str, str]) -> str:
    return {"space": " ", "condition": ""}.get(part[0], part[1])


def _shown(section: Section, value: float, first_day: int) -> str:
    kinds = {kind for kind, _ in section}
    if kinds & {"time", "elapsed", "half"}:
        try:
            return _date(section, value, first_day)
        except OverflowError:  # after the year 9999
            return show_general(value)
    if "digit" not in kinds:
        return "".join(show_general(value) if part[0] == "general" else _literal(part) for part in section)
    if ("other", "/") in section and (match := _FRACTION.search(code := "".join(map(_literal, section)))):
        return code[: match.start()] + _fraction(match, value) + code[match.end() :]
    return _decimal(section, value)


def _fraction(match: re.Match[str], value: float) -> str:
    whole, bottom = int(value) if match[1] else 0, int(match[3]) if match[3].strip("0#?") else 0
    part = Fraction(value) - whole
    nearest = Fraction(round(part * bottom), bottom) if bottom else part.limit_denominator(10 ** len(match[3]) - 1)
    if match[1] and nearest in {0, 1}:
        return str(whole + nearest)
    below = bottom or nearest.denominator
    return f"{whole or ''} {nearest * below}/{below}".strip()


def _decimal(section: Section, value: float) -> str:
    """Return a number in the digits of a section; if the first is not enough, all further digits stand there."""
    end = next((i for i, (kind, _) in enumerate(section) if kind == "exponent"), len(section))
    point = section.index(_POINT) if _POINT in section[:end] else end
    slots = [i for i, (kind, _) in enumerate(section) if kind == "digit"]
    whole, part = [i for i in slots if i < point], [i for i in slots if point < i < end]
    commas = [i for i, text in enumerate(section) if text == _COMMA]
    last = whole[-1] if whole else -1
    is_grouped = any(whole[0] < i < last for i in commas) if whole else False
    number = Decimal(f"{value:.15g}").scaleb(2 * section.count(("other", "%")) - 3 * sum(i > last for i in commas))
    exponent, step = 0, max(len(whole), 1)
    if end < len(section) and number:
        exponent = number.adjusted() // step * step
        exponent += step * (_rounded(number, exponent, len(part)) >= 10**step)
    integer, _, fraction = f"{_rounded(number, exponent, len(part)):f}".partition(".")
    zeros = next((len(whole) - n for n, i in enumerate(whole) if section[i][1] == "0"), 0)
    shown = dict.fromkeys([*slots, *commas], "")
    for position, digit in enumerate(reversed(integer.lstrip("0").rjust(zeros, "0"))):
        slot = whole[max(len(whole) - 1 - position, 0)] if whole else point
        separator = "," if is_grouped and position and position % 3 == 0 else ""
        shown[slot] = digit + separator + shown.get(slot, ".")
    shown |= zip(part, fraction, strict=True)
    for i in reversed(part):
        if section[i][1] == "0" or shown[i] != "0":
            break
        shown[i] = ""
        if i == part[0]:
            shown[point] = shown.get(point, ".")[:-1]
    if end < len(section):
        sign = "-" if exponent < 0 else section[end][1][1:].strip("-")
        shown[end] = f"E{sign}{abs(exponent):0{max(len(slots) - len(whole) - len(part), 1)}}"
    return "".join(shown.get(i, _literal(text)) for i, text in enumerate(section))


def _rounded(number: Decimal, exponent: int, places: int) -> Decimal:
    return number.scaleb(-exponent).quantize(Decimal(1).scaleb(-places), context=_EXACT)


def _date(section: Section, value: float, first_day: int) -> str:
    places = sum(kind == "digit" for kind, _ in section)  # of seconds
    is_time_of_day = all(kind != "elapsed" for kind, _ in section)  # which shows what has passed in full
    cut = Decimal("0.49999" if is_time_of_day else 0).scaleb(-places)
    seconds = round(Decimal(f"{value:.15g}") * 86400 - cut, places)
    days = int(seconds // 86400) + first_day
    # Spreadsheet programs count a 29 February 1900, which did not exist.
    moment = datetime(1899, 12, 30 if days >= 60 else 31) + timedelta(days, int(seconds % 86400))
    fraction = iter(f"{seconds % 1:.{places}f}"[2:])
    has_half = any(kind == "half" for kind, _ in section)
    shown = ""
    for kind, text in section:
        unit = kind if kind == "minute" else text[:1].lower()
        if kind in {"time", "minute"}:
            letter = "I" if has_half and unit == "h" else _DIRECTIVES[unit][: len(text)][-1]
            written = f"{moment:%{letter}}"
            shown += written[0] if len(text) == 5 else written.removeprefix("0" if len(text) == 1 else "")
        elif kind == "elapsed":
            shown += f"{int(seconds // {'h': 3600, 'm': 60, 's': 1}[unit]):0{len(text)}}"
        elif kind == "half":
            shown += f"{moment:%p}"[: 1 if len(text) == 3 else 2]
        else:
            shown += next(fraction) if kind == "digit" else _literal((kind, text))
    return shown


class XmlCells:
    """The cells of an .xlsx file, found by a search for tags."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self.unused = dict(enumerate(self.strings))

    def shown(self, part: str) -> Iterator[tuple[Place, str, bool]]:
        """Yield the place of each cell with a value, the shown text, and whether a format makes another text of it."""
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
        codes_by_number = {str(number): code for number, code in _CODES.items()} | codes
        used = re.search(r"<(?:\w+:)?cellXfs\b.*?</(?:\w+:)?cellXfs>", styles, re.DOTALL)
        tags = re.findall(r"<(?:\w+:)?xf\b([^<>]*)", used[0] if used else "")
        return [codes_by_number.get(attribute(tag, "numFmtId"), "General") for tag in tags]


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
    return html.unescape("".join(_TEXT_TAG.findall(_PHONETIC.sub("", xml))))


def attribute(tag: str, name: str) -> str:
    """Return an attribute of a tag, "" if it is missing."""
    value = re.search(rf"""(?:^|\s){name}\s*=\s*(["'])(.*?)\1""", tag, re.DOTALL)
    return value[2] if value else ""


def read_part(package: Package, name: str) -> str:
    """Return a part as text."""
    return package.read(name).decode("utf-8", "replace")
