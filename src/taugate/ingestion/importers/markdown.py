"""Markdown to blocks. HTML and Word files are converted to Markdown first, so that the same rules divide all three."""

import re

from markdown_it import MarkdownIt

from taugate.ingestion.importers.front_matter import FrontMatter, split_front_matter
from taugate.ingestion.importers.html_markdown import to_markdown
from taugate.ingestion.importers.html_source import mend, read_source
from taugate.ingestion.parsed import BlockKind, ParsedDocument, ParsedFile, TextBuilder

_KINDS: dict[str, BlockKind] = {"fence": "code", "code_block": "code", "table_open": "table"}
_COMPONENT = re.compile(r"\s*<[A-Z]\w*[a-z]")  # of MDX, such as <TabItem label="Linux">: its attributes are read
_ENTITY = re.compile(r"&(?:nbsp|[et]\w+sp|lt|gt|amp|quot|#\d+|#[xX][0-9a-fA-F]+);")  # spaces and signs


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
