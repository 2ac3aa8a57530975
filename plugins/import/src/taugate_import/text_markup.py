"""Texts with other markup than Markdown: reStructuredText, Org, AsciiDoc, XML and Jupyter notebooks."""

import dataclasses
import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import lxml.etree
import orjson

from taugate.data.parsed import BlockKind, ParsedFile, TextBuilder, UnreadableFile
from taugate.storage.files import Json
from taugate_import.html import parse_html
from taugate_import.html_markdown import read_source
from taugate_import.markdown import parse_markdown
from taugate_import.plain_text import DecodedText, decode_text, parse_code
from taugate_import.word_share import count_words

Heading = tuple[int, int, int, str]
"""The first line of a heading, the line after it, its level from 1, and its text."""

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*$")
_ORG_HEADING = re.compile(r"(\*+)[ \t]+(?:(?:TODO|DONE|NEXT|WAITING)[ \t]+)?(.*?)(?:[ \t]+:[\w@#%:]+:)?[ \t]*$")
_ORG_TITLE = re.compile(r"^[ \t]*#\+title:(.*)\n?", re.IGNORECASE | re.MULTILINE)
_ASCIIDOC_HEADING = re.compile(r"(={1,6})[ \t]+(\S.*?)[ \t]*$")

_PARSER = lxml.etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
_MAX_ENTITY = 1000  # characters, as entities that consist of entities may have any length

_TERMINAL_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NO_TEXT = {
    *("metadata", "cell_type", "output_type", "id", "name", "ename", "evalue", "language", "attachments", "stream")
}
_NO_FORMS = ("image/", "audio/", "video/", "application/", "text/javascript")
_NO_FORMS_BEFORE_4 = {"svg", "png", "jpeg", "json", "javascript", "pdf"}
# Forms of an output in order of preference; those without a slash are of version 3.
_FORMS = ("text/plain", "text", "text/markdown", "text/latex", "latex", "text/html", "html")
_REPRESENTATION = re.compile(r"\s*<[^<>\n]*>\s*")  # of an object, such as <IPython.core.display.HTML object>


def parse_rst(raw: bytes) -> ParsedFile:
    """Read reStructuredText."""
    return _parse(decode_text(raw), _rst_headings, lambda lines: lines[0][:1].isspace())


def parse_org(raw: bytes) -> ParsedFile:
    """Read a file of Org mode; `#+TITLE:` is its title."""
    decoded = decode_text(raw)
    title = " ".join(" ".join(_ORG_TITLE.findall(decoded.text)).split())
    body = dataclasses.replace(decoded, text=_ORG_TITLE.sub("", decoded.text))
    file = _parse(
        body, _matching(_ORG_HEADING), lambda lines: lines[0].lower().startswith(("#+begin_src", "#+begin_ex"))
    )
    document = dataclasses.replace(file.documents[0], title=title)
    return dataclasses.replace(file, documents=[document], source_text=f"{title}\n{file.source_text}")


def parse_asciidoc(raw: bytes) -> ParsedFile:
    """Read AsciiDoc."""
    return _parse(
        decode_text(raw), _matching(_ASCIIDOC_HEADING), lambda lines: lines[0].startswith(("----", "[source", "...."))
    )


def _parse(
    decoded: DecodedText,
    headings_of: Callable[[Sequence[str]], Iterator[Heading]],
    is_code: Callable[[Sequence[str]], bool],
) -> ParsedFile:
    lines = decoded.text.replace("\f", "\n").split("\n")
    builder = TextBuilder()
    path: list[tuple[int, str]] = []
    position = 0
    for start, end, level, text in [*headings_of(lines), (len(lines), len(lines), 0, "")]:
        names = tuple(name for _, name in path)
        for block in _blocks(lines[position:start]):
            kind: BlockKind = "code" if is_code(block) else "prose"
            builder.add("\n".join(block), kind, names)
        if level:
            path = [(above, name) for above, name in path if above < level] + [(level, text)]
            builder.add("\n".join(lines[start:end]), "heading", tuple(name for _, name in path))
        position = end
    return ParsedFile([builder.document("")], decoded.text, decoded.notes)


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield paragraphs; indented lines, and lines between the marks of a listing, are not divided."""
    block: list[str] = []
    listing = ""
    for line in [*lines, ""]:
        mark = line.strip().lower()
        if listing:
            block.append(line)
            listing = "" if mark.startswith(listing) else listing
            continue
        if mark.startswith("#+begin_"):
            listing = mark.split()[0].replace("begin", "end")
        elif mark in {"----", "...."}:
            listing = mark
        if line.strip() or (block and block[0][:1].isspace()):
            if block and block[0][:1].isspace() and line.strip() and not line[:1].isspace():
                yield block
                block = []
            block.append(line)
        elif block:
            yield block
            block = []
    if any(line.strip() for line in block):
        yield block


def _rst_headings(lines: Sequence[str]) -> Iterator[Heading]:
    """Yield titles above a line of signs; each kind of sign is a level, in the order of first use."""
    levels: dict[str, int] = {}
    last = 0
    for number in range(1, len(lines)):
        title, under = lines[number - 1].rstrip(), lines[number]
        if number - 1 < last or not title or (title[:1].isspace() and number < 2) or not _ADORNMENT.match(under):
            continue
        over = lines[number - 2] if number >= 2 else ""
        has_over = bool(_ADORNMENT.match(over)) and over.rstrip() == under.rstrip() and number - 2 >= last
        is_title = has_over or (not over.strip() and not title[:1].isspace())
        if _ADORNMENT.match(title) or not is_title or len(under.rstrip()) < min(len(title), 4):
            continue
        style = under[0] * (2 if has_over else 1)
        level = levels.setdefault(style, len(levels) + 1)
        last = number + 1
        yield number - 1 - has_over, number + 1, level, " ".join(title.split())


def _matching(heading: re.Pattern[str]) -> Callable[[Sequence[str]], Iterator[Heading]]:
    """Return a function that finds headings of one line."""

    def headings(lines: Sequence[str]) -> Iterator[Heading]:
        for number, line in enumerate(lines):
            if match := heading.match(line):
                yield number, number + 1, len(match[1]), match[2]

    return headings


def parse_xml(raw: bytes) -> ParsedFile:
    """Read XML: a paragraph for each element with text, or the file as code if its words are in attributes."""
    try:
        root = lxml.etree.fromstring(raw, _PARSER)
    except lxml.etree.XMLSyntaxError:
        return parse_code(raw)
    _resolve_entities(root)
    text = " ".join("".join(root.itertext()).split())
    attributes = " ".join(value for element in root.iter("*") for value in element.attrib.values())
    if count_words([text]).total() <= count_words([attributes]).total():
        return parse_code(raw)
    builder = TextBuilder()
    paragraph: list[str] = []
    mixed = {element for element in root.iter() if _has_own_text(element)}
    for event, element in lxml.etree.iterwalk(root, events=("start", "end")):
        is_inline = element.getparent() in mixed
        if not is_inline:
            builder.add("".join(paragraph).strip(), "prose")
            paragraph = []
        paragraph.append((element.text if event == "start" else element.tail) or "")
    builder.add("".join(paragraph).strip(), "prose")
    content = lxml.etree.tostring(root, encoding="unicode")
    source_text = html.unescape(re.sub(r"<[^<>]*>", " ", content))
    return ParsedFile([builder.document("")], source_text)


def _resolve_entities(root: "lxml.etree._Element") -> None:
    """Replace entities by the text that the file defines, or that they have in HTML; no other file is read."""
    definitions = root.getroottree().docinfo.internalDTD
    texts = {f"&{entity.name};": entity.content or "" for entity in (definitions.iterentities() if definitions else ())}
    for entity in root.iter(lxml.etree.Entity):
        text = entity.text
        for _ in range(min(len(texts), 5)):  # as an entity may contain others
            text = re.sub(r"&[\w.-]+;", lambda name: texts.get(name[0]) or name[0], text)[:_MAX_ENTITY]
        entity.tail = html.unescape(re.sub(r"<[^<>]*>", " ", text)) + (entity.tail or "")
    lxml.etree.strip_tags(root, lxml.etree.Entity)


def _has_own_text(element: "lxml.etree._Element") -> bool:
    """Return whether an element has text beside its children, which are then parts of a sentence."""
    return any(text.strip() for text in (element.text or "", *(child.tail or "" for child in element)))


def parse_notebook(raw: bytes) -> ParsedFile:
    """Read a notebook; pictures among its outputs are left out."""
    decoded = decode_text(raw)
    try:
        notebook = orjson.loads(decoded.text)
    except orjson.JSONDecodeError as error:
        raise UnreadableFile(f"is not a notebook, or is damaged: {error.msg} on line {error.lineno}") from error
    cells = [*_cells(notebook)]
    if not cells:
        raise UnreadableFile("has no cells; it is not a notebook, or is empty")
    parts = [part for cell in cells for part in _parts(cell)]
    document = parse_markdown(
        "\n\n".join(part if is_text else _fenced(part) for is_text, part in parts), converted=True
    )
    return ParsedFile([document], "\n".join(_strings(notebook)), decoded.notes)


def _strings(value: object, name: str = "") -> Iterator[str]:
    """Yield all strings of a notebook except names, pictures, and internal data of programs."""
    if isinstance(value, Mapping):
        left_out = {*_NO_TEXT, *(_NO_FORMS_BEFORE_4 if "output_type" in value else ()), *_FORMS} - {_form(value)}
        for key, child in value.items():
            if key not in left_out and not key.startswith(_NO_FORMS):
                yield from _strings(child, key)
    elif isinstance(value, list) and not all(isinstance(line, str) for line in value):
        for child in value:
            yield from _strings(child, name)
    elif isinstance(value, list | str):
        text = _text(value, "\n" if name == "traceback" else "")
        yield read_source(text) if name in {"text/html", "html"} else text


def _cells(notebook: object) -> Iterator[Mapping[str, Json]]:
    """Yield the cells of a notebook; before version 4, they are in worksheets."""
    if not isinstance(notebook, Mapping):
        return
    sheets = notebook.get("worksheets")
    for holder in [notebook, *(sheets if isinstance(sheets, list) else [])]:
        cells = holder.get("cells") if isinstance(holder, Mapping) else None
        yield from (cell for cell in (cells if isinstance(cells, list) else []) if isinstance(cell, Mapping))


def _parts(cell: Mapping[str, Json]) -> Iterator[tuple[bool, str]]:
    """Yield the text of a cell and its outputs, each with whether it is Markdown."""
    kind = cell.get("cell_type")
    source = _text(cell.get("source", cell.get("input")))
    if kind == "heading":  # before version 4
        source = f"{'#' * int(cast(int, cell.get('level', 1)))} {source}"
    yield kind in {"markdown", "heading"}, source
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else []:
        if not isinstance(output, Mapping):
            continue
        data = output.get("data")
        shown = data if isinstance(data, Mapping) else output
        form = _form(shown)
        text = _text(shown.get(form))
        is_page = form in {"text/html", "html"}
        yield is_page or form == "text/markdown", parse_html(text.encode()).documents[0].text if is_page else text
        yield False, _text(output.get("traceback"), "\n")


def _form(output: Mapping[str, Json]) -> str:
    """Return the name of the form in which an output is read: its plain text, unless that only names another form."""
    forms = [name for name in _FORMS if name in output]
    pictures = [name for name in output if name in _NO_FORMS_BEFORE_4 or name.startswith(_NO_FORMS)]
    if forms and len(forms) + len(pictures) > 1 and _REPRESENTATION.fullmatch(_text(output[forms[0]])):
        del forms[0]
    return forms[0] if forms else ""


def _text(value: object, between: str = "") -> str:
    """Return a text that a notebook holds as a string or as lines."""
    lines = value if isinstance(value, list) else [value]
    return between.join(_strip_colours(line) for line in lines if isinstance(line, str))


def _strip_colours(line: str) -> str:
    return _TERMINAL_COLOUR.sub("", line)


def _fenced(code: str) -> str:
    """Return code as a block of Markdown, empty if it is blank."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * max(longest + 1, 3)
    return f"{fence}\n{code.strip(chr(10))}\n{fence}" if code.strip() else ""
