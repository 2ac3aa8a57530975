"""Front matter of a Markdown page, in YAML or TOML: title, dates, tags and other fields."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import yaml

from taugate.ingestion.importers.metadata_values import metadata_value, split_tags, tags
from taugate.retrieval.documents.store import MetadataValue

_YAML = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TOML = re.compile(r"\A\+\+\+[ \t]*\n(.*?)\n\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL)
_DATES = dict.fromkeys(("date", "created", "published"), "created")
_DATES |= dict.fromkeys(("updated", "lastmod", "modified"), "modified")
_TAGS = ("tags", "keywords", "categories")  # the first that exists is used
_PROSE = ("description", "summary", "excerpt", "abstract", "subtitle", "lead")
_RESERVED = ("title", "path", "heading", "page", "created", "modified", "tags")  # metadata filled in elsewhere
_FIELD = re.compile(r"""^(?:\[+)?["']?([^\s"'\[\]#:=][^"'\[\]:=]*?)["']?\s*(?:[:=\]]|$)""")
_VALUE_WITHOUT_WORDS = re.compile(
    r"(?m)^[ \t]*[\w-][\w -]*[:=][ \t]*(?:null|~|['\"]?\d{4}-\d\d-\d\d[\d.:+TZ -]*['\"]?)[ \t]*$", re.IGNORECASE
)
_NAME = re.compile(r"(?m)^[ \t]*(?:-[ \t]+)?[\w-][\w -]*[:=](?=\s|$)|^[ \t]*\[+[\w. -]+\]+[ \t]*$|(?:^|\s)#.*$")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Reads values as they are written, unlike YAML 1.1, in which `1.10` is 1.1, `NO` false, and `12:30` a number."""


def _number(text: str) -> int | float | str:
    """Return a number that is printed as it was written, else the text."""
    number = float(text) if "." in text else int(text)
    return number if str(number) == text else text


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("tag:yaml.org,2002:null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", "true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("!number", r"-?\d{1,15}(?:\.\d{1,15})?", [*"-0123456789"]),
):
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)
_Loader.add_constructor("!number", lambda _, node: _number(node.value))


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """Content of front matter.

    Attributes:
        title: Title, or "".
        prose: Descriptions, and fields that contain other fields, as they are written.
        metadata: Dates, tags, and the other fields by name.
        words: All of its values, from a plain reading, without numbers, dates and booleans.
    """

    title: str = ""
    prose: str = ""
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    words: str = ""


def split_front_matter(text: str) -> tuple[FrontMatter, str]:
    """Return the front matter of a text, and the text after it."""
    if match := _YAML.match(text):
        try:
            values = yaml.load(match[1], _Loader)  # noqa: S506 (a SafeLoader)
        except (yaml.YAMLError, ValueError, RecursionError):  # it only looks like front matter: keep it as text
            return FrontMatter(), text
    elif match := _TOML.match(text):
        try:
            values = tomllib.loads(match[1], parse_float=_number)
        except (tomllib.TOMLDecodeError, RecursionError):
            return FrontMatter(), text
    else:
        return FrontMatter(), text
    if not isinstance(values, dict):
        return FrontMatter(), text
    return _read(values, match[1]), text[match.end() :]


def _read(values: Mapping[Any, Any], source: str) -> FrontMatter:
    title = str(values["title"]).strip() if isinstance(values.get("title"), str | int | float | date) else ""
    metadata = _dates_and_tags(values)
    used = {name for name in ("title",) if title} | {name for name in _PROSE if isinstance(values.get(name), str)}
    used |= {name for name, key in _DATES.items() if key in metadata and str(values.get(name))[:10] == metadata[key]}
    if "tags" in metadata:
        used.add(next(name for name in _TAGS if _as_tags(values.get(name))))
    prose = [values[name].strip() for name in _PROSE if isinstance(values.get(name), str)]
    fields = _fields(source)
    for name, value in values.items():
        if name in used and _is_flat(value):
            continue
        plain = metadata_value(value) if _is_flat(value) and str(name) not in _RESERVED else None
        if plain is not None:
            metadata.setdefault(str(name), plain)
        elif value:
            prose.append(fields.get(str(name), source))
    words = _NAME.sub(" ", _VALUE_WITHOUT_WORDS.sub("", source))
    return FrontMatter(title, "\n\n".join(dict.fromkeys(prose)), metadata, words)


def _is_flat(value: object) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, str | int | float | date) for item in items)


def _fields(source: str) -> dict[str, str]:
    """Return the lines of each top-level field as they are written, by name."""
    fields: dict[str, list[str]] = {}
    lines: list[str] = []
    in_table = False  # of TOML
    for line in source.split("\n"):
        starts_table = line.startswith("[")
        match = _FIELD.match(line)
        if match and (starts_table or not (in_table or line.startswith(("-", " ", "\t")))):
            in_table = starts_table
            lines = fields.setdefault(match[1].split(".")[0], [])
        lines.append(line)
    return {name: "\n".join(lines) for name, lines in fields.items()}


def _as_tags(value: object) -> list[str] | None:
    """Return a list, or a text divided by commas, as tags."""
    if isinstance(value, str):
        return split_tags(value)
    if not isinstance(value, list):
        return None
    words = (item for item in value if isinstance(item, str | int | float | date))
    # The tags 2024 and true are a number and a boolean.
    return tags(str(word).lower() if isinstance(word, bool) else str(word) for word in words)


def _dates_and_tags(values: Mapping[Any, Any]) -> dict[str, MetadataValue]:
    named = ((key, values.get(name)) for name, key in _DATES.items())
    facts: dict[str, MetadataValue] = {}
    for key, value in named:
        if value is not None and re.match(r"\d{4}-\d\d-\d\d", str(value)):
            facts[key] = str(value)[:10]
    for name in _TAGS:
        if "tags" not in facts and (words := _as_tags(values.get(name))):
            facts["tags"] = words
    return facts
