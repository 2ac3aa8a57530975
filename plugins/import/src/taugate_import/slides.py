"""Presentations (.pptx): one heading per slide, with its text, tables, diagrams and charts, and the speaker's notes.

The files are read here, as python-pptx ignores diagrams and shapes with alternatives for older programs
(docs/dependencies.md).
"""

from typing import Any

from taugate.data.parsed import ParsedFile, TextBuilder, UnreadableFile
from taugate_import.office_package import Package, text_outside_tags
from taugate_import.word import choose_alternatives, description, drawing_lines

Element = Any  # lxml has no public type for an element

_KIND = "a presentation"
_TITLES = {"title", "ctrTitle"}
_NUMBERS = {"sldNum", "dt", "sldImg"}
_DRAWN = {"diagramData", "chart"}
_READ = r"ppt/(?:slides/slide|notesSlides/notesSlide|diagrams/data|charts/chart|comments/)\w*\.xml"
_NO_TEXT = (
    r"<(?P<tag>mc:Fallback|p:timing|a:tableStyleId|c:f|c:formatCode|p:attrName)\b[^<>]*(?<!/)>.*?</(?P=tag)>"
    r'|<a:fld\b[^<>]*type="(?:slidenum|datetime)[^<>]*>.*?</a:fld>'
)


def parse_pptx(raw: bytes) -> ParsedFile:
    """Read a presentation as text, including hidden slides."""
    package = Package(raw, _KIND)
    main = package.main_part()
    related = package.related(main)
    builder = TextBuilder()
    for number, reference in enumerate(package.xml(main).iter("{*}sldId"), start=1):
        identifier = next((value for key, value in reference.attrib.items() if str(key).endswith("}id")), "")
        _, name = related.get(identifier, ("", ""))
        if name in package.names:
            _add_slide(builder, package, name, number)
    document = builder.document(package.title, metadata=package.metadata)
    if not document.text:
        raise UnreadableFile("holds no text")
    return ParsedFile(
        [document], text_outside_tags(map(package.read, package.matching(_READ)), _NO_TEXT), package.notes
    )


def _add_slide(builder: TextBuilder, package: Package, name: str, number: int) -> None:
    """Add the text of a slide."""
    slide = package.xml(name)
    choose_alternatives(slide)
    title = next((shape for shape in slide.iter("{*}sp") if _placeholder(shape) in _TITLES), None)
    heading = " ".join(" ".join(drawing_lines(title)).split()) if title is not None else ""
    headings = (heading,) if heading else ()
    if heading:
        builder.add(f"# {heading}", "heading", headings, number)
    for shape in slide.iter("{*}sp", "{*}cxnSp", "{*}tbl", "{*}cNvPr"):
        if shape is title or _placeholder(shape) in _NUMBERS:
            continue
        if str(shape.tag).endswith("}cNvPr"):
            builder.add(description(shape), "prose", headings, number)
        elif str(shape.tag).endswith("}tbl"):
            builder.add(_table(shape), "table", headings, number)
        else:
            builder.add("\n".join(drawing_lines(shape)), "prose", headings, number)
    for kind, part in package.related(name).values():
        if part not in package.names:
            continue
        if kind in _DRAWN:
            builder.add("\n".join(drawing_lines(package.xml(part))), "prose", headings, number)
        elif kind == "notesSlide":
            choose_alternatives(page := package.xml(part))
            notes = [shape for shape in page.iter("{*}sp") if _placeholder(shape) not in _NUMBERS]
            builder.add("\n".join(line for shape in notes for line in drawing_lines(shape)), "prose", headings, number)
        elif kind == "comments":
            for comment in package.xml(part).iter("{*}cm"):
                words = " ".join("".join(comment.itertext("{*}text", "{*}t")).split())
                builder.add(words, "prose", headings, number)


def _placeholder(shape: Element) -> str:
    """Return the part of a slide's layout that a shape fills, or ""."""
    placeholder = next(shape.iter("{*}ph"), None)
    return "" if placeholder is None else str(placeholder.get("type", ""))


def _table(table: Element) -> str:
    """Return a table as Markdown."""
    rows = [
        f"| {' | '.join(' '.join(drawing_lines(cell)) for cell in row.iterchildren('{*}tc'))} |"
        for row in table.iter("{*}tr")
    ]
    return "\n".join([*rows[:1], "|" + " --- |" * rows[0].count(" | ") + " --- |", *rows[1:]]) if rows else ""
