"""Reads JSON as people and programs leave it, and loses nothing: no repeated name, no large number."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from typing import Any

from taugate.ingestion.importers.html import to_markdown
from taugate.ingestion.importers.nested import MAX_LISTED_NUMBERS
from taugate.ingestion.importers.plain_text import DecodedText, decode_text
from taugate.ingestion.importers.records import MarkdownText
from taugate.ingestion.importers.rich_text import MARKUP
from taugate.ingestion.parsed import UnreadableFile

_NAMES = (
    "p div span a b i u em strong small sub sup ul ol li dl dt dd h[1-6] table thead tbody tr td th blockquote pre "
    "code figure figcaption section article header footer main details summary mark html body font center"
).replace(" ", "|")
_START_TAG = re.compile(rf"<({_NAMES})(?:\s[^<>]*)?>", re.IGNORECASE)
_END_TAG = re.compile(rf"</({_NAMES})\s*>", re.IGNORECASE)
_LONE_TAG = re.compile(r"<(?:br|hr)\s*/?>|<img\s[^<>]*>", re.IGNORECASE)
_CODE = re.compile(r"`[^`\n]*<[^`\n]*`|^```", re.MULTILINE)
_HTML_FIELDS = ("rendered", "html")  # whose text is HTML even if it has entities alone
_SPACE = re.compile(r"[\s,;\x1e]*")  # between two values of a file; \x1e begins a record of RFC 7464
_MAX_DIGITS = 18  # of a number that is kept as one; longer ones are text

_STRING = r'"((?:[^"\\]|\\.)*+)(?:"|\Z)'
_TOKEN = re.compile(rf"{_STRING}(\s*:)?|(-?\d[\w.+-]*)", re.DOTALL)
_EDITOR = re.compile(r'"(?:children|content|blocks|ops|rich_text|nodes|text)"\s*:\s*\[|"plain_text"\s*:')
_MARKUP_FIELD = re.compile(
    rf'"(?:{"|".join(sorted(MARKUP))})"\s*:\s*(?:"(?:[^"\\]|\\.)*+"|-?[\d.eE+-]+|\[[^\[\]{{}}]*+\])', re.DOTALL
)
_NUMBERS = re.compile(rf"\[(?:[\s\[\],]*+-?\d[\d.eE+-]*+){{{MAX_LISTED_NUMBERS + 1},}}+[\s\]]*\]")
_SCRIPT = re.compile(r"<(script|style)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)


@dataclass
class JsonReader:
    """Reads the values of a JSON file.

    Attributes:
        repeated: Names that stood twice in one object.
    """

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
        """Yield the values of a text, of which there may be several. Raises json.JSONDecodeError or RecursionError."""
        at = _skip(text, 0)
        while at < len(text):
            value, end = self._decoder.raw_decode(text, at)
            yield _converted(value)
            at = _skip(text, end)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Make an object of its members; of a name that is repeated, all values are kept."""
        members: dict[str, Any] = {}
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


def _both(one: Any, other: Any) -> Any:  # noqa: ANN401 (any value of JSON)
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n{other}"
    return [*(one if isinstance(one, list) else [one]), *(other if isinstance(other, list) else [other])]


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def _decimal(digits: str) -> float | str:
    return value if math.isfinite(value := float(digits)) else digits


def _constant(_: str) -> None:
    """NaN and Infinity, which Python and JavaScript write for missing numbers."""


def as_markdown(text: str, name: str = "") -> str:
    """Return a string of JSON as it is, or as Markdown if it is HTML; a text that only mentions tags is not.

    Args:
        text: Of a field.
        name: Of the field, which may say that it is HTML.
    """
    if "<" in text and is_html(text):
        return MarkdownText(to_markdown(text).strip())
    return unescape(text) if "&" in text and name in _HTML_FIELDS else text


def is_html(text: str) -> bool:
    """Tell whether a text is HTML: it has an element with its end tag, or a line break, outside of code."""
    if _CODE.search(text):
        return False
    if _LONE_TAG.search(text):
        return True
    last_end = {match[1].lower(): match.start() for match in _END_TAG.finditer(text)}
    return any(last_end.get(match[1].lower(), -1) > match.start() for match in _START_TAG.finditer(text))


def decode_json(raw: bytes) -> DecodedText:
    """Decode a JSON file: UTF-8, UTF-16 or UTF-32, with a byte order mark or without.

    Raises:
        UnreadableFile: .
    """
    encoding = json.detect_encoding(raw)
    try:
        return DecodedText(raw.decode(encoding).removeprefix("\ufeff"))
    except UnicodeDecodeError:
        return decode_text(raw)


def not_json(error: json.JSONDecodeError, text: str) -> UnreadableFile:
    """Return the error of a file that is not JSON.

    Args:
        text: Of the file.
    """
    reason = f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]} on line {error.lineno}"
    rest = text[error.pos : error.pos + 2]
    if rest in {"//", "/*"} or rest.startswith("#"):
        return UnreadableFile(f"{reason}; JSON has no comments: remove them")
    if rest[:1] in {"]", "}"} and text[: error.pos].rstrip().endswith(","):
        return UnreadableFile(f"{reason}; remove the comma before it")
    return UnreadableFile(reason)


def words_of_json(text: str) -> str:
    """Return the strings and numbers of a JSON text, without the names of its fields, markup, and vectors.

    Args:
        text: JSON, or what should be. It is read token by token, without any idea of objects and arrays.
    """
    text = _NUMBERS.sub(" ", text)
    if _EDITOR.search(text):
        text = _MARKUP_FIELD.sub(" ", text)
    return "\n".join(_words(text))


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
