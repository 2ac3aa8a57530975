"""Markdown to blocks. HTML and Word files become Markdown first, so that all three are divided by the same rules."""

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

import yaml
from bs4 import BeautifulSoup
from markdown_it import MarkdownIt

from taugate.ingestion.importers.metadata_values import split_tags, tags
from taugate.ingestion.parsed import BlockKind, ParsedDocument, TextBuilder
from taugate.retrieval.documents.store import MetadataValue

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_DATES = {
    "date": "created",
    "created": "created",
    "published": "created",
    "updated": "modified",
    "modified": "modified",
}
_TAGS = ("tags", "keywords", "categories")  # the first that is there
_KINDS: dict[str, BlockKind] = {"fence": "code", "code_block": "code", "table_open": "table"}


def parse_markdown(text: str) -> ParsedDocument:
    """Divide Markdown into headings, prose, tables and code.

    text: CommonMark with tables, and perhaps YAML front matter, of which title, dates and tags are read. Links and
    emphasis stay as they are written.
    """
    front_matter, text = _split_front_matter(text)
    lines = text.split("\n")
    builder = TextBuilder()
    headings: list[tuple[int, str]] = []  # level and text, outermost first
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for i, token in enumerate(tokens):
        if token.level or token.map is None or token.nesting < 0 or token.type == "hr":
            continue
        path = tuple(heading for _, heading in headings)
        source = "\n".join(lines[slice(*token.map)])
        if token.type == "heading_open":
            name = " ".join(_plain(tokens[i + 1].content).split())
            if name:
                level = int(token.tag[1:])
                headings = [(above, heading) for above, heading in headings if above < level] + [(level, name)]
                builder.add(source, "heading", tuple(heading for _, heading in headings))
        elif token.type == "html_block":
            builder.add(BeautifulSoup(source, "lxml").get_text(" "), "prose", path)
        else:
            builder.add(source, _KINDS.get(token.type, "prose"), path)
    title = front_matter.get("title")
    return builder.document(title.strip() if isinstance(title, str) else "", metadata=_facts(front_matter))


def _plain(inline: str) -> str:
    """Return a heading without emphasis, code marks, and link targets."""
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", inline).replace("`", "").replace("**", "").strip("*_ ")


def _split_front_matter(text: str) -> tuple[Mapping[str, Any], str]:
    if not (found := _FRONT_MATTER.match(text)):
        return {}, text
    try:
        values = yaml.safe_load(found[1])
    except (yaml.YAMLError, ValueError, RecursionError):  # it only looks like front matter: keep it as text
        return {}, text
    return (values, text[found.end() :]) if isinstance(values, dict) else ({}, text)


def _facts(front_matter: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Return the dates and tags of front matter. Tags are a list, or a text in which commas divide them."""
    named = ((name, front_matter.get(key)) for key, name in _DATES.items())
    facts: dict[str, MetadataValue] = {
        name: str(value)[:10] for name, value in named if value is not None and re.match(r"\d{4}-\d\d-\d\d", str(value))
    }
    for name in _TAGS:
        value = front_matter.get(name)
        found = split_tags(value) if isinstance(value, str) else None
        if isinstance(value, list):  # YAML reads the tags 2024 and true as a number and a boolean
            words = (each for each in value if isinstance(each, str | int | float | date))
            found = tags(str(each).lower() if isinstance(each, bool) else str(each) for each in words)
        if found:
            facts.setdefault("tags", found)
    return facts
