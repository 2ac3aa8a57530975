"""Values inside a record, at any depth, with the path of field names to each, and as metadata for filters."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TypeAlias

from taugate.retrieval.documents.store import MetadataValue
from taugate_import.rich_text import rich_text

MAX_LISTED_NUMBERS = 16
"""Longer lists of numbers, such as vectors and outlines of areas, are left out, as readers cannot use them."""

_RUN = re.compile(r"\d+|[^\W\d_]+|[^\w\s.,:;/+-]")  # numbers, words and signs
_SEPARATOR = "."
_MAX_NAME = 100  # characters of a string in a list of names
_LARGEST = 1 << 53  # largest integer that every reader of JSON keeps exactly


def metadata_value(value: object) -> MetadataValue:
    """Return a value as metadata, None if it is missing, not finite, too large, or contains other values.

    Args:
        value: Value of a record or an object. Dates become text in ISO 8601; a list, tuple or set of strings becomes
            tags.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # half of a surrogate pair is not a character
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple | set | frozenset):
        strings = [item for item in value if isinstance(item, str)]
        ordered = sorted(strings) if isinstance(value, set | frozenset) else strings
        return tags(ordered) if len(strings) == len(value) else None
    isoformat = getattr(value, "isoformat", None)
    return str(isoformat()) if callable(isoformat) else None


def tags(strings: Iterable[str]) -> list[str] | None:
    """Return strings as tags: without duplicates, in order, without space around them; None if none is left."""
    trimmed = (" ".join(string.encode("utf-8", "replace").decode().split()) for string in strings)
    return [*dict.fromkeys(tag for tag in trimmed if tag)] or None


def split_tags(text: str) -> list[str] | None:
    """Return the tags of a text divided by commas or semicolons, as in keywords of a web page."""
    return tags(text.replace(";", ",").split(","))


@dataclass(frozen=True, slots=True)
class TypedCell:
    """A cell of text that is a number, a date or a boolean."""

    value: MetadataValue
    text: str


# A value of a record, of JSON, of a column of Parquet, or of a cell.
Value: TypeAlias = (
    "bool | int | float | str | bytes | Decimal | date | time | timedelta | TypedCell | Sequence[Value] | Fields | None"
)
Fields: TypeAlias = "Mapping[str, Value]"


def written_form(cell: object) -> object:
    """Return the text of a typed cell, other values as they are."""
    return cell.text if isinstance(cell, TypedCell) else cell


def plain_value(cell: object) -> object:
    """Return the value of a typed cell, other values as they are."""
    return cell.value if isinstance(cell, TypedCell) else cell


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value of a record that contains no other record.

    Attributes:
        listed: Whether the path contains a list of records, so that other leaves may have the same path.
    """

    path: str
    value: MetadataValue
    listed: bool = False
    first: bool = False
    written: str | None = None

    @property
    def text(self) -> str:
        """The value as text."""
        return value_text(self.value) if self.written is None else self.written

    @property
    def shows_more(self) -> bool:
        """Whether the written text has words that the value lacks, such as 00815 or P-007; 3.50 has not."""
        if self.written is None:
            return False
        # Zeros begin a number that is a code, and the parts of a date.
        strip = str.strip if isinstance(self.value, str) else str.rstrip
        texts = (self.written.casefold(), value_text(self.value).casefold())
        written, value = ({strip(run, "0") for run in _RUN.findall(text)} for text in texts)
        return not written <= value


def leaves_of(record: Fields, path: str = "") -> Iterator[Leaf]:
    """Yield the leaves of a record in order; empty ones and long lists of numbers are left out."""
    yield from _of_mapping(record, path, listed=False)


def _of_mapping(record: Fields, path: str, *, listed: bool) -> Iterator[Leaf]:
    for name, value in record.items():
        yield from _of_value(value, f"{path}{_SEPARATOR}{name}" if path else str(name), listed=listed)


def _of_value(value: object, path: str, *, listed: bool) -> Iterator[Leaf]:
    if written_form(value) is not value:
        yield Leaf(path, scalar_of(plain_value(value)), listed, written=str(written_form(value)))
    elif (text := text_of(value)) is not None:
        if text.strip():
            yield Leaf(path, text, listed)
    elif isinstance(value, Mapping):
        yield from _of_mapping(value, path, listed=listed)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from _of_list([*value], path, listed=listed)
    elif (scalar := scalar_of(value)) is not None:
        yield Leaf(path, scalar, listed)


def _of_list(values: list[object], path: str, *, listed: bool) -> Iterator[Leaf]:
    if is_number_list(values):
        return
    if not any(isinstance(value, Mapping | list | tuple) for value in values):
        strings = [clean(value) if isinstance(value, str) else value for value in values]
        if (prose := prose_of(strings)) is not None:
            yield Leaf(path, prose, listed=True)  # text, which filters cannot use
            return
        tags = metadata_value(strings)
        if tags is not None:
            yield Leaf(path, tags, listed)
        elif scalars := [value_text(scalar) for value in strings if (scalar := scalar_of(value)) not in {None, ""}]:
            yield Leaf(path, ", ".join(scalars), listed=True)  # of several kinds, which filters cannot use
        return
    for value in values:
        for number, leaf in enumerate(_of_value(value, path, listed=True)):
            yield Leaf(leaf.path, leaf.value, listed=True, first=number == 0 and isinstance(value, Mapping))


def text_of(value: object) -> str | None:
    """Return the text of a value: a string, rich text, or text rendered by a CMS; None if it is not text."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping) and isinstance(rendered := value.get("rendered"), str):
        siblings = (child for name, child in value.items() if name != "rendered" and not isinstance(child, bool))
        return None if any(siblings) else clean(rendered)
    text = rich_text(value)
    return None if text is None else clean(text)


def own_text_of(value: object) -> str | None:
    """Return the value of a text field as text: as in `text_of`, or a list of paragraphs; None if it is neither."""
    if isinstance(value, list) and value and all(isinstance(paragraph, str) for paragraph in value):
        return clean("\n\n".join(value))
    return text_of(value)


def prose_of(values: Sequence[object]) -> str | None:
    """Return a list of strings as one text if they are sentences or lines; None if they are names, such as tags."""
    strings = [value.strip() for value in values if isinstance(value, str)]
    if len(strings) < len(values) or not any(_is_prose(string) for string in strings):
        return None
    return "\n".join(strings)


def _is_prose(text: str) -> bool:
    return len(text) > _MAX_NAME or "\n" in text or (" " in text and text.endswith((".", "!", "?")))


def clean(text: str) -> str:
    """Return a string with line feeds as line breaks; halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")


def scalar_of(value: object) -> MetadataValue:
    """Return a value that is not a collection as a scalar, None if it is missing or is bytes that are not text."""
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return None
    converted = metadata_value(value)
    if converted is not None or value is None or value != value:  # noqa: PLR0124 (NaN: a missing number)
        return converted
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and abs(value) < _LARGEST else float(value)
    return str(value)


def value_text(value: MetadataValue) -> str:
    """Return a scalar or a list of strings as text; booleans as in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else str(value)


def is_number_list(values: object) -> bool:
    """Return whether a value is a list of many numbers, or of lists of numbers, such as a vector."""
    return _numbers(values) > MAX_LISTED_NUMBERS


def _numbers(value: object) -> float:
    """Count the numbers of a list of only numbers and such lists; negative infinity if it contains other values."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 1
    if isinstance(value, list | tuple):
        return sum(map(_numbers, value))
    return float("-inf")


def left_out_fields(records: Iterable[Fields]) -> list[str]:
    """Return the fields of records that `leaves` leaves out: long lists of numbers, and bytes that are not text."""
    names: dict[str, None] = {}
    for record in records:
        names |= dict.fromkeys(_left_out(record, ""))
    return [*names]


def _left_out(value: object, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, child in value.items():
            yield from _left_out(child, f"{path}{_SEPARATOR}{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        if is_number_list(value):
            yield path
        else:
            for child in value:
                if isinstance(child, Mapping | list | tuple | bytes):
                    yield from _left_out(child, path)
    elif isinstance(value, bytes) and scalar_of(value) is None:
        yield path
