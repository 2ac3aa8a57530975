"""Markdown to blocks. HTML and Word files become Markdown first, so that all three are divided by the same rules."""

import re
from collections.abc import Mapping
from typing import Any

import yaml
from bs4 import BeautifulSoup
from markdown_it import MarkdownIt

from taugate.ingestion.parsed import BlockKind, ParsedDocument, TextBuilder
from taugate.retrieval.documents.store import Scalar

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_DATES = {
    "date": "created",
    "created": "created",
    "published": "created",
    "updated": "modified",
    "modified": "modified",
}
_KINDS: dict[str, BlockKind] = {"fence": "code", "code_block": "code", "table_open": "table"}


def parse_markdown(text: str) -> ParsedDocument:
    """Divide Markdown into headings, prose, tables and code.

    text: CommonMark with tables, and perhaps YAML front matter, whose title and dates are read. Links and emphasis stay
    as they are written.
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
    return builder.document(title.strip() if isinstance(title, str) else "", metadata=_dates(front_matter))


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


def _dates(front_matter: Mapping[str, Any]) -> dict[str, Scalar]:
    named = ((name, front_matter.get(key)) for key, name in _DATES.items())
    return {
        name: str(value)[:10] for name, value in named if value is not None and re.match(r"\d{4}-\d\d-\d\d", str(value))
    }
