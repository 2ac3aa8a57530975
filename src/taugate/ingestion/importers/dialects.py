"""Dialects of delimited text, and a reader of rows in a given dialect.

Rows with unbalanced quotes are detected and damage no other row: the reader continues with the next line.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import _csv

csv.field_size_limit(1 << 26)  # the default, 128 KiB, is less than a long article

_NO_DELIMITER = "\x1f"  # cannot occur, as `decode_text` removes control characters
_MAX_READ_AHEAD = 20  # times that a line may be read in search of the end of quotes
_MAX_FAULTS = 1000  # with more faults, and in more than half of the rows, the dialect is wrong
_ESCAPED_LETTER = re.compile(r"\\([\s\S])")
_LETTERS = {"n": "\\\n", "t": "\\\t", "r": "\\\n", "N": ""}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The way in which fields are divided.

    Attributes:
        delimiter: Delimiter of fields, None if each row is one field.
        quote: Quote around a field, None if quotes are content.
        escaped: Whether a backslash escapes the next character, and means a line break before the letter n.
        spaced: Whether spaces after a delimiter are not part of the field.
    """

    delimiter: str | None
    quote: str | None = '"'
    escaped: bool = False
    spaced: bool = False


@dataclass(slots=True)
class DelimitedRows:
    """The rows of a delimited text, without empty lines.

    Attributes:
        rows: Rows of fields.
        lines: Number of the line on which each row begins, from 1.
        faults: Positions of rows with unbalanced quotes.
    """

    rows: list[list[str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)


def read_rows(
    lines: Sequence[str], dialect: Dialect, width: int | None = None, *, partial: bool = False
) -> DelimitedRows | None:
    """Read delimited text.

    Args:
        lines: Physical lines, each with its line feed.
        dialect: Dialect to read in.
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
