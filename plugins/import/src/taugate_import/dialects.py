"""Dialects of delimited text, and the choice of the one in which all rows have as many fields as the header.

Rows with unbalanced quotes are detected and damage no other row: the reader continues with the next line.

Choice of the dialect of delimited text: the one in which all rows have as many fields as the header. `csv.Sniffer`
looks at quotes alone, and fails as soon as a sentence contains some. Here each dialect in common use is tried on the
text, and the one with the fewest irregular rows is chosen.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from taugate_import.table_rows import USUAL_NAMES, is_typed

if TYPE_CHECKING:
    import _csv


csv.field_size_limit(1 << 26)  # the default, 128 KiB, is less than a long article

_NO_DELIMITER = "\x1f"  # cannot occur, as `decode_text` removes control characters
_MAX_READ_AHEAD = 20  # times that a line may be read in search of the end of quotes
_MAX_FAULTS = 1000  # with more faults, and in more than half of the rows, the dialect is wrong
_ESCAPED_LETTER = re.compile(r"\\([\s\S])")
_LETTERS = {"n": "\\\n", "t": "\\\t", "r": "\\\n", "N": ""}

DELIMITERS = "\t;|,"
_SAMPLE = 1 << 19  # characters on which the dialects are compared first
_MIN_LINES = 50  # the same, in lines
_MAX_IRREGULAR = 1 / 3  # share of rows with another number of fields, in a table
_MAX_BELOW_TITLE = 0.1  # the same, if the first lines are not part of the table
_MAX_ABOVE = 20  # lines above a header
_MAX_WHOLE = 4  # dialects in which a long text is read completely


@dataclass(frozen=True, slots=True)
class Dialect:
    """The way in which fields are divided.

    Attributes:
        delimiter: Delimiter of fields, None if each row is one field.
        quote: Quote around a field, None if quotes are content.
        escaped: Whether a backslash escapes the next character, and means a line break before the letter n.
    """

    delimiter: str | None
    quote: str | None = '"'
    escaped: bool = False
    spaced: bool = False


@dataclass(slots=True)
class DelimitedRows:
    """The rows of a delimited text, without empty lines."""

    rows: list[list[str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)


def read_rows(
    lines: Sequence[str], dialect: Dialect, width: int | None = None, *, partial: bool = False
) -> DelimitedRows | None:
    """Read delimited text.

    Args:
        width: Expected number of fields; a row of several lines with another number counts as one with unbalanced
            quotes. None if unknown.
        partial: Whether the text is a part, so that a quoted field may end after its last line.

    Returns:
        The rows, or None if most rows are faulty, or quotes that do not end take too long to read.
    """
    result = DelimitedRows()
    begin = read_ahead = 0
    while begin < len(lines):
        start = begin
        reader = _reader((lines[number] for number in range(begin, len(lines))), dialect, strict=True)
        try:
            for row in reader:
                end = start + reader.line_num
                if end - begin > 1 and width is not None and len(row) != width and not dialect.escaped:
                    break
                if any(row):
                    result.rows.append(row)
                    result.lines.append(begin + 1)
                begin = end
            else:
                return result
        except csv.Error:
            if partial and start + reader.line_num == len(lines):
                return result
        read_ahead += start + reader.line_num - begin
        result.faults.append(len(result.rows))
        result.rows.append(_lenient(lines[begin], dialect, width))
        result.lines.append(begin + 1)
        if len(result.faults) > _MAX_FAULTS and 2 * len(result.faults) > len(result.rows):
            return None
        if read_ahead > _MAX_READ_AHEAD * (len(lines) + _MAX_FAULTS):
            return None
        begin += 1
    return result


def _reader(lines: Iterable[str], dialect: Dialect, *, strict: bool) -> "_csv.Reader":
    return csv.reader(
        _unescaped(lines) if dialect.escaped else lines,
        delimiter=dialect.delimiter or _NO_DELIMITER,
        quotechar=dialect.quote or '"',
        quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
        escapechar="\\" if dialect.escaped else None,
        skipinitialspace=dialect.spaced,
        strict=strict,
    )


def _unescaped(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines in which escaped letters are replaced by the characters that they stand for, still escaped."""
    for line in lines:
        yield _ESCAPED_LETTER.sub(lambda match: _LETTERS.get(match[1], match[0]), line) if "\\" in line else line


def _lenient(line: str, dialect: Dialect, width: int | None) -> list[str]:
    """Divide a line with unbalanced quotes: by its quotes if the number of fields is right, else without them."""
    line = line.rstrip("\n")
    for quote in (dialect.quote, None):
        try:
            rows: list[list[str]] = list(_reader([line], Dialect(dialect.delimiter, quote), strict=False))
        except csv.Error:
            continue
        if rows and (quote is None or len(rows[0]) == width):
            return rows[0]
    return [line]


@dataclass(frozen=True, slots=True)
class Reading:
    """A text read in a dialect."""

    dialect: Dialect
    rows: DelimitedRows
    width: int
    first: int
    irregular: list[int]

    @property
    def irregular_share(self) -> float:
        """Share of the rows with another number of fields, or with quotes that do not match."""
        return len({*self.irregular, *self.rows.faults}) / max(len(self.rows.rows), 1)


def read_delimited(lines: Sequence[str], delimiter: str | None = None) -> Reading:
    """Read delimited text in the dialect that fits it best.

    Args:
        lines: Lines of the text, each with its line feed; at least one has a word.
    """
    sample = lines[: _lines_within(lines, _SAMPLE)]
    head, partial = "".join(sample), len(sample) < len(lines)
    tried = [reading for dialect in _dialects(head, delimiter) if (reading := _read(sample, dialect, partial=partial))]
    tables = [reading for reading in tried if _is_table(reading, sample)]
    tables.sort(key=lambda reading: _rank(reading, tried, head))
    if not tables:
        return _one_column(lines)
    return _best_of_whole(lines, tables) if partial else tables[0]


def _best_of_whole(lines: Sequence[str], tables: Sequence[Reading]) -> Reading:
    """Read the complete text in the dialects that fit its beginning about equally well, and return the best reading."""
    best: Reading | None = None
    for table in tables[:_MAX_WHOLE]:
        if table.irregular_share > tables[0].irregular_share + 0.05:
            break
        reading = _read(lines, table.dialect)
        if reading and (best is None or reading.irregular_share < best.irregular_share):
            best = reading
        if best and best.irregular_share == 0:
            break
    return best or _one_column(lines)


def _lines_within(lines: Sequence[str], size: int) -> int:
    total = 0
    for number, line in enumerate(lines):
        total += len(line)
        if total > size and number >= _MIN_LINES:
            return number
    return len(lines)


def _dialects(text: str, delimiter: str | None) -> Iterator[Dialect]:
    """Yield possible dialects of a text, the most common first."""
    for between in [delimiter] if delimiter else [character for character in DELIMITERS if character in text]:
        yield from _dialects_of_fields(between, text)


def _dialects_of_fields(delimiter: str | None, text: str) -> Iterator[Dialect]:
    """Yield dialects with the possible quotes and escapes.

    Args:
        delimiter: Delimiter of fields, None if each row is one field.
    """
    between = re.escape(delimiter) if delimiter else "^"
    if '"' in text:
        if delimiter and re.search(rf'{between} +"', text):
            yield Dialect(delimiter, spaced=True)
        yield Dialect(delimiter)
        if '\\"' in text:
            yield Dialect(delimiter, escaped=True)
    if re.search(rf"(?:^|{between})'", text, re.MULTILINE):
        yield Dialect(delimiter, quote="'")
        if "\\'" in text:
            yield Dialect(delimiter, quote="'", escaped=True)
    yield Dialect(delimiter, quote=None)
    if "\\" in text:
        yield Dialect(delimiter, quote=None, escaped=True)


def _read(lines: Sequence[str], dialect: Dialect, *, partial: bool = False) -> Reading | None:
    rows = read_rows(lines, dialect, partial=partial)
    if rows is None or not rows.rows:
        return None
    width = _width(rows)
    if rows.faults or any(len(row) != width for row in rows.rows):
        again = read_rows(lines, dialect, width, partial=partial)
        if again is None:
            return None
        rows = again
    first = next((number for number, row in enumerate(rows.rows) if len(row) == width), 0)
    irregular = [number for number, row in enumerate(rows.rows) if number > first and not _is_regular(row, width)]
    return Reading(dialect, rows, width, first, irregular)


def _width(rows: DelimitedRows) -> int:
    """Return the number of fields of the header: that of the first row, unless most rows have another number."""
    head = rows.rows[0]
    regular = sum(_is_regular(row, len(head)) for row in rows.rows)
    if 2 * regular >= len(rows.rows) or (len(head) > 1 and _has_usual_names(head)):
        return len(head)
    return max(Counter(map(len, rows.rows)).items(), key=lambda item: (item[1], item[0]))[0]


def _is_regular(row: Sequence[str], width: int) -> bool:
    return len(row) == width or (len(row) > width and not any(row[width:]))


def _has_usual_names(row: Sequence[str]) -> bool:
    return any(cell.strip().casefold() in USUAL_NAMES for cell in row)


def _is_table(reading: Reading, lines: Sequence[str]) -> bool:
    """Return whether a reading looks like a table, rather than like prose with commas."""
    if reading.width < 2:
        return False
    rows = reading.rows.rows
    if reading.first == 0:
        return reading.irregular_share <= _MAX_IRREGULAR or _has_usual_names(rows[0])
    below = rows[reading.first + 1 :]
    share = len(reading.irregular) / max(len(below), 1)
    if reading.first > _MAX_ABOVE or len(below) < 1 or share > _MAX_BELOW_TITLE:
        return False
    start = reading.rows.lines[reading.first] - 1
    header = rows[reading.first]
    typed = not any(map(is_typed, header)) and any(
        all(is_typed(row[i].strip()) for row in below if len(row) == reading.width) for i in range(reading.width)
    )
    marked = any(not line.strip() or line.startswith(("#", "//")) for line in lines[:start])
    return marked or typed or _has_usual_names(header)


def _rank(reading: Reading, tried: Sequence[Reading], text: str) -> tuple[float, ...]:
    """Return a sort key of readings: regular rows first, then the dialects that programs usually write."""
    dialect = reading.dialect
    return (
        round(reading.irregular_share, 3),
        reading.first > 0,
        -reading.width,
        DELIMITERS.find(dialect.delimiter or ""),
        _unlikely(reading, [other for other in tried if other.dialect.delimiter == dialect.delimiter], text),
    )


def _unlikely(reading: Reading, readings: Sequence[Reading], text: str) -> int:
    """Return how unlikely the quotes and escapes of a reading are, given other readings with the same delimiter."""
    dialect = reading.dialect
    delimiter = re.escape(dialect.delimiter or "")
    if dialect.quote == "'":
        return 0 if _encloses(text, delimiter) else 9
    if dialect.quote is None and dialect.escaped:
        return 1 if _are_escapes(text, dialect.delimiter or "") else 8
    if dialect.quote is None:
        # Programs that quote fields quote every field with a quote in it: a bare quote shows that no field is quoted.
        bare = re.search(rf'(?<=[^{delimiter}\n"\\])"(?=[^{delimiter}\n"])', text)
        spaced = any(other.dialect.spaced for other in readings)
        # Lines with tabs rarely belong to one field, unless the first line shows that fields are quoted.
        merged = dialect.delimiter == "\t" and not text.startswith('"')
        merged = merged and any(
            len(other.rows.rows) < len(reading.rows.rows) for other in readings if not other.dialect.escaped
        )
        return 2 if (bare and not spaced) or merged else 6
    if dialect.escaped:
        return 5
    # Programs leave no quote after a backslash, unless the backslash is an escape.
    escapes = re.search(rf'\\"(?=[^{delimiter}\n"])', text) and re.search(rf'(?:^|{delimiter})"', text, re.MULTILINE)
    return 3 if dialect.spaced else 7 if escapes else 4


def _encloses(text: str, delimiter: str) -> bool:
    """Return whether single quotes enclose fields: some field contains a delimiter or quote, and no quote is bare."""
    alone = re.search(rf"(?<=[^{delimiter}\n'\\])'(?=[^{delimiter}\n'])", text)
    all_enclosed = all(re.fullmatch("'.*'", line) for line in text.split("\n")[:50] if line)
    return not alone and ("''" in text or "\\'" in text or all_enclosed)


def _are_escapes(text: str, delimiter: str) -> bool:
    """Return whether each backslash of a text without quoted fields is an escape, as in MySQL and PostgreSQL."""
    followers = Counter(re.findall(r"\\([\s\S])", text))
    special = {*(delimiter or DELIMITERS), "\\", "\n", '"', "'", "N"}
    if followers.keys() - special - set("ntr0bfv."):
        return False
    if not delimiter and re.search('^"', text, re.MULTILINE):
        return False  # lines that begin with a quote are fields, which may span lines
    quotes_escaped = not re.search(r'(?<!\\)"', text)
    if delimiter not in {"\t", ""} and not quotes_escaped:
        return False
    if any(followers[character] for character in (*(delimiter or DELIMITERS), "\\", "\n", "N")) or (
        quotes_escaped and followers['"']
    ):
        return True
    breaks = sum(followers[letter] for letter in "ntr")
    in_strings = len(re.findall(r"""\\[ntr]["'%{}]|["'%{}]\\[ntr]""", text))  # as in source code
    if followers["'"] or followers['"'] or 2 * in_strings > breaks:
        return False
    ends = len(re.findall(r"(?<=[a-z.,;:!?)])\\[ntr]|\\[ntr](?![a-z])", text))  # unlike $\times$
    return 2 * ends >= breaks > 0 and not re.search(r"\b[A-Za-z]:\\", text)  # nor C:\new


def _one_column(lines: Sequence[str]) -> Reading:
    """Read a text whose rows are one field each, in the dialect whose quotes match."""
    text = "".join(lines[: _lines_within(lines, _SAMPLE)])
    read = ((dialect, read_rows(lines, dialect)) for dialect in _dialects_of_fields(None, text))
    tried = [Reading(dialect, rows, 1, 0, []) for dialect, rows in read if rows and rows.rows]
    return min(tried, key=lambda reading: (reading.irregular_share, _unlikely(reading, tried, text)))
