"""Markdown to blocks, with front matter. HTML and Word files are converted to Markdown first."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import yaml
from markdown_it import MarkdownIt

from taugate.data.parsed import BlockKind, ParsedDocument, ParsedFile, TextBuilder
from taugate.retrieval.documents.store import MetadataValue
from taugate_import.html_markdown import mend, read_source, to_markdown
from taugate_import.values import metadata_value, split_tags, tags

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

_KINDS: dict[str, BlockKind] = {"fence": "code", "code_block": "code", "table_open": "table"}
_COMPONENT = re.compile(r"\s*<[A-Z]\w*[a-z]")  # of MDX, such as <TabItem label="Linux">: its attributes are read
_ENTITY = re.compile(r"&(?:nbsp|[et]\w+sp|lt|gt|amp|quot|#\d+|#[xX][0-9a-fA-F]+);")  # spaces and signs


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


def parse_markdown_file(text: str) -> ParsedFile:
    """Read a Markdown file.

    Args:
        text: As in `parse_markdown`. Comments, scripts and HTML tags do not count as words.
    """
    front_matter, body = split_front_matter(text)
    words = _ENTITY.sub(" ", read_source(body, glue=" ", entities=False))
    return ParsedFile([parse_markdown(text)], f"{front_matter.words} {words}")


def parse_markdown(text: str, *, converted: bool = False) -> ParsedDocument:
    """Divide Markdown into headings, prose, tables and code.

    Args:
        text: CommonMark with tables, and possibly front matter, whose title, dates and tags are read and whose
            descriptions become the first text. Links and emphasis are kept as they are written. Blocks of HTML become
            Markdown.
        converted: Whether it was converted from another format, so that it contains neither front matter nor HTML, and
            text that looks like a tag is text.
    """
    front_matter, body = (FrontMatter(), text) if converted else split_front_matter(text)
    lines = body.split("\n")
    builder = TextBuilder()
    builder.add(front_matter.prose, "prose")
    headings: list[tuple[int, str]] = []  # level and text, outermost first
    tokens = MarkdownIt("commonmark", {"html": not converted}).enable("table").parse(body)
    read = 0  # lines
    for i, token in enumerate(tokens):
        if token.level or token.map is None or token.nesting < 0:
            continue
        path = tuple(heading for _, heading in headings)
        start, end = token.map
        builder.add("\n".join(lines[read:start]), "prose", path)  # definitions of links, which are not blocks
        read = max(read, end)
        source = "\n".join(lines[start:end])
        if converted and token.type not in _KINDS:
            source = re.sub(r"(?<=\S) {2,}(?=\S)", " ", source)
        if token.type == "heading_open":
            name = " ".join(_plain(tokens[i + 1].content).split())
            if name:
                level = int(token.tag[1:])
                headings = [(above, heading) for above, heading in headings if above < level] + [(level, name)]
                path = tuple(heading for _, heading in headings)
                builder.add(source, "heading", path)
        elif token.type == "html_block" and not _COMPONENT.match(source):
            builder.add(to_markdown(mend(source)), "prose", path)
        elif token.type != "hr":
            builder.add(source, _KINDS.get(token.type, "prose"), path)
    builder.add("\n".join(lines[read:]), "prose", tuple(heading for _, heading in headings))
    return builder.document(front_matter.title, metadata=front_matter.metadata)


def _plain(inline: str) -> str:
    """Return a heading without emphasis, code marks, and link targets."""
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", inline).replace("`", "").replace("**", "").strip("*_ ")
