"""A tolerant reader of JSON that loses nothing: neither repeated names nor large numbers."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from typing import Any

from taugate.data.parsed import UnreadableFile
from taugate.storage.files import Json
from taugate_import.html_markdown import to_markdown
from taugate_import.plain_text import DecodedText, decode_text
from taugate_import.records import MarkdownText
from taugate_import.rich_text import MARKUP
from taugate_import.values import MAX_LISTED_NUMBERS

_NAMES = (
    "p div span a b i u em strong small sub sup ul ol li dl dt dd h[1-6] table thead tbody tr td th blockquote pre "
    "code figure figcaption section article header footer main details summary mark html body font center"
).replace(" ", "|")
_START_TAG = re.compile(rf"<({_NAMES})(?:\s[^<>]*)?>", re.IGNORECASE)
_END_TAG = re.compile(rf"</({_NAMES})\s*>", re.IGNORECASE)
_LONE_TAG = re.compile(r"<(?:br|hr)\s*/?>|<img\s[^<>]*>", re.IGNORECASE)
_CODE = re.compile(r"`[^`\n]*<[^`\n]*`|^```", re.MULTILINE)
_HTML_FIELDS = ("rendered", "html")  # fields whose text is HTML even if it has only entities
_SPACE = re.compile(r"[\s,;\x1e]*")  # between two values of a file; \x1e begins a record of RFC 7464
_LAST_COMMA = re.compile(r",\s*([\]}])")
_MAX_DIGITS = 18  # of a number; longer ones are kept as text

_STRING = r'"((?:[^"\\]|\\.)*+)(?:"|\Z)'
_TOKEN = re.compile(rf"{_STRING}(\s*:)?|(-?\d[\w.+-]*)", re.DOTALL)
_EDITOR = re.compile(r'"(?:children|content|blocks|ops|rich_text|nodes|text)"\s*:\s*\[|"plain_text"\s*:')
_MARKUP_FIELD = re.compile(
    rf'"(?:{"|".join(sorted(MARKUP))})"\s*:\s*(?:"(?:[^"\\]|\\.)*+"|-?[\d.eE+-]+|\[[^\[\]{{}}]*+\])', re.DOTALL
)
# Long lists of numbers, with the brackets around them. Separators follow their number: in Python before 3.11.5 a
# possessive repeat does not return to its start if an iteration fails after some characters (gh-106052).
_NUMBERS = re.compile(rf"\[[\s\[\],]*+(?:-?\d[\d.eE+-]*+[\s\[\],]*+){{{MAX_LISTED_NUMBERS + 1},}}+")
_SCRIPT = re.compile(r"<(script|style)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)


@dataclass
class JsonReader:
    """Reads the values of a JSON file."""

    repeated: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=_whole,
            parse_float=_decimal,
            parse_constant=_constant,
            strict=False,
        )

    def values(self, text: str) -> Iterator[Any]:
        """Yield the values of a text, which may hold several."""
        at = _skip(text, 0)
        while at < len(text):
            value, end = self._decoder.raw_decode(text, at)
            yield _converted(value)
            at = _skip(text, end)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Json]:
        """Make an object of its members; all values of a repeated name are kept."""
        members: dict[str, Json] = {}
        for name, value in pairs:
            converted = _converted(value, name)
            if name in members and members[name] != converted:
                self.repeated[name] = None
                members[name] = _both(members[name], converted)
            else:
                members[name] = converted
        return members


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _converted(value: Any, name: str = "") -> Any:  # noqa: ANN401 (any value of JSON)
    if isinstance(value, str):
        return as_markdown(value, name)
    if isinstance(value, list):
        return [_converted(item, name) for item in value]
    return value


def _both(first: Any, second: Any) -> Any:  # noqa: ANN401 (any value of JSON)
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n{second}"
    return [*(first if isinstance(first, list) else [first]), *(second if isinstance(second, list) else [second])]


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def _decimal(digits: str) -> float | str:
    return value if math.isfinite(value := float(digits)) else digits


def _constant(_: str) -> None:
    """Return None for NaN and Infinity, which Python and JavaScript write for missing numbers."""


def as_markdown(text: str, name: str = "") -> str:
    """Return a string of JSON as it is, or as Markdown if it is HTML; text that only mentions tags is not."""
    if "<" in text and is_html(text):
        return MarkdownText(to_markdown(text).strip())
    return unescape(text) if "&" in text and name in _HTML_FIELDS else text


def is_html(text: str) -> bool:
    """Return whether a text is HTML: it has an element with its end tag, or a line break, outside of code."""
    if _CODE.search(text):
        return False
    if _LONE_TAG.search(text):
        return True
    last_end = {match[1].lower(): match.start() for match in _END_TAG.finditer(text)}
    return any(last_end.get(match[1].lower(), -1) > match.start() for match in _START_TAG.finditer(text))


def decode_json(raw: bytes) -> DecodedText:
    """Decode a JSON file: UTF-8, UTF-16 or UTF-32, with or without a byte order mark."""
    encoding = json.detect_encoding(raw)
    try:
        return DecodedText(raw.decode(encoding).removeprefix("\ufeff"))
    except UnicodeDecodeError:
        return decode_text(raw)


def not_json(error: json.JSONDecodeError, line: int = 1) -> UnreadableFile:
    """Return the error for a file that is not JSON, in the same words for every version of Python.

    Args:
        line: Number, from 1, of the line of the file that the parsed text begins on.
    """
    text, at = error.doc, error.pos
    if text[at : at + 1] in {"]", "}"}:  # before Python 3.13, a comma too many is reported at the bracket after it
        at = max(len(text[:at].rstrip()) - 1, 0)
    if comma := _LAST_COMMA.match(text, at):
        on_line = line + text.count("\n", 0, at)
        return UnreadableFile(f"is not JSON: remove the comma on line {on_line}, before {comma[1]}")
    fault = error.msg[:1].lower() + error.msg[1:].removesuffix(" starting at")  # the position, which is not repeated
    following = text[error.pos : error.pos + 2]
    remedy = "; JSON has no comments: remove them" if following in {"//", "/*"} or following[:1] == "#" else ""
    return UnreadableFile(f"is not JSON: {fault} on line {line + error.lineno - 1}{remedy}")


def words_of_json(text: str) -> str:
    """Return the strings and numbers of a JSON text, without the names of its fields, markup, and vectors.

    Args:
        text: JSON, possibly invalid. It is read token by token, without regard to objects and arrays.
    """
    text = _NUMBERS.sub(_without_numbers, text)
    if _EDITOR.search(text):
        text = _MARKUP_FIELD.sub(" ", text)
    return "\n".join(_words(text))


def _without_numbers(numbers: re.Match[str]) -> str:
    """Return a space for a list that ends after its last number, and other text unchanged."""
    separators = numbers[0][len(numbers[0].rstrip("[], \t\r\n")) :]
    return " " if separators.lstrip().startswith("]") else numbers[0]


def _words(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(text):
        if match[3]:
            yield match[3]
        elif not match[2]:
            yield _plain(match[1])


def _plain(token: str) -> str:
    if "\\" in token:
        try:
            token = json.loads(f'"{token}"', strict=False)
        except ValueError:
            token = token.replace("\\", " ")
    if "<" in token and is_html(token):
        token = re.sub(r"<[^<>]*>", " ", _SCRIPT.sub(" ", token))
    return unescape(token)
