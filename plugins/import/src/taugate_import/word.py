"""Word files (.docx) to Markdown, with mammoth, after content that mammoth ignores became paragraphs that it reads.

Rewrites a Word file for mammoth: content that mammoth ignores becomes paragraphs that it reads. mammoth reads
paragraphs, styles, lists, tables and notes. It ignores text boxes, equations, diagrams, charts, headers, footers,
comments, embedded files and unknown elements.
"""

import dataclasses
import email
import io
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any
from xml.parsers.expat import ExpatError

import lxml.etree
import mammoth
from bs4 import BeautifulSoup

from taugate.data.parsed import ParsedFile, UnreadableFile
from taugate_import.html_markdown import to_markdown
from taugate_import.markdown import parse_markdown
from taugate_import.office_package import Package, text_outside_tags
from taugate_import.word_share import Script, join_scripts, linear_text

Element = Any  # lxml has no public type for an element

NOTES = r"word/(?:footnotes|endnotes)\d*\.xml"
HEADERS = r"word/(?:header|footer)\d*\.xml"
COMMENTS = r"word/comments\d*\.xml"
DRAWN = r"word/(?:diagrams/data|charts/chart)\w*\.xml"
_STYLES = "word/styles.xml"
_EMBEDDED_HTML = (".htm", ".html", ".xhtml")
_EMBEDDED_ARCHIVE = (".mht", ".mhtml")  # of Word, and of programs that convert web pages to Word files
# Elements that mammoth searches for text; other elements with text are replaced by their content.
_KNOWN = frozenset(
    {"document", "body", "p", "r", "t", "tbl", "tr", "tc", "hyperlink", "ins", "sdt", "sdtContent", "smartTag"}
    | {"footnotes", "footnote", "endnotes", "endnote", "comments", "comment", "hdr", "ftr"}
)
_BREAKS = {"br": "br", "cr": "br", "ptab": "tab"}  # breaks that mammoth may ignore, and those that it reads
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".emf", ".wmf", ".svg", ".webp")
_DELETED = ("del", "moveFrom")

_KIND = "a Word file"
# Content that is not text: deleted text, field codes, positions of drawings, and alternatives for older programs.
_NO_TEXT = (
    r"<(?P<tag>w:del|w:moveFrom|w:delText|w:instrText|w:fldData|mc:Fallback|c:f|c:formatCode|wp:align|wp:posOffset|"
    r"wp14:\w+|a:ext|o:\w+)(?:\s[^<>]*)?(?<!/)>.*?</(?P=tag)>"
)


def rewrite(package: Package, main: str) -> bytes:
    """Return a Word file without pictures, of which mammoth reads all text."""
    body_part = package.xml(main)
    body = next(body_part.iterchildren("{*}body"), None)
    if body is None:
        raise UnreadableFile("is not a Word file, or is damaged")
    namespace = str(body.tag).rpartition("}")[0][1:]
    _flatten(body, package, main, namespace)
    end = [*body.iterchildren("{*}sectPr")][-1:]
    for block in _appended(package, namespace):
        if end:
            end[0].addprevious(block)
        else:
            body.append(block)
    rewritten = {main: body_part}
    for name in package.matching(NOTES):
        rewritten[name] = package.xml(name)
        _flatten(rewritten[name], package, name, namespace)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in package.names:
            if name in rewritten:
                archive.writestr(name, lxml.etree.tostring(rewritten[name], encoding="utf-8", xml_declaration=True))
            elif name.endswith((".xml", ".rels")) and not name.startswith("customXml/"):
                archive.writestr(name, package.read(name))
    return packed.getvalue()


def distinct_parts(package: Package, pattern: str) -> list[bytes]:
    """Return parts with distinct text, such as the headers of first, odd and even pages, which are often the same."""
    return [*{"".join(package.xml(name).itertext()): package.read(name) for name in package.matching(pattern)}.values()]


def _appended(package: Package, namespace: str) -> Iterator[Element]:
    """Yield the blocks of headers, footers and comments, which have no place in the text."""
    for content in [*distinct_parts(package, HEADERS), *distinct_parts(package, COMMENTS)]:
        part = package.parse(content)
        _flatten(part, package, "", namespace)
        for link in [*part.iter("{*}hyperlink"), *part.iter("{*}comment")]:
            _unwrap(link)  # its target is named in relations of the part
        for child in part:
            if "".join(child.itertext()).strip():
                yield child


def _flatten(root: Element, package: Package, name: str, namespace: str) -> None:
    """Rewrite a part in place."""
    choose_alternatives(root)
    _mark_scripts(root, package, namespace)
    for tag in _DELETED:
        for deleted in [*root.iter(f"{{{namespace}}}{tag}")]:
            _remove(deleted)
    for equation in [*root.iter("{*}oMath")]:
        if equation.getparent() is not None:
            _replace(equation, [_run(f" {linear_text(equation).strip()} ", namespace)])
    relations = package.related(name) if name else {}
    for drawing in [*root.iter("{*}drawing", "{*}pict", "{*}object")]:
        _after_paragraph(drawing, _drawn_blocks(drawing, package, relations, namespace))
    for box in [*root.iter("{*}txbxContent")]:
        _after_paragraph(box, [*box])
    for drawing in [*root.iter("{*}drawing", "{*}pict")]:
        if drawing.getparent() is not None:
            _remove(drawing)
    _insert_embedded(root, package, relations, namespace)
    for element in root.iter(*(f"{{{namespace}}}{tag}" for tag in _BREAKS)):
        element.tag = f"{{{namespace}}}{_BREAKS[str(element.tag).rpartition('}')[2]]}"
        element.attrib.clear()  # a break of a page or column is a break of the line
    for element in reversed([*root.iter("*")]):
        tag = str(element.tag).rpartition("}")[2]
        if tag not in _KNOWN and element is not root and next(element.iter(f"{{{namespace}}}t"), None) is not None:
            _unwrap(element)


def _mark_scripts(root: Element, package: Package, namespace: str) -> None:
    """Mark runs as superscript or subscript if their style or position is; mammoth reads only the marks of runs."""
    value, name = f"{{{namespace}}}val", f"{{{namespace}}}styleId"
    styles = [*package.xml(_STYLES).iter("{*}style")] if _STYLES in package.names else []
    bases = {style.get(name): base.get(value, "") for style in styles for base in style.iterchildren("{*}basedOn")}
    offsets = {style.get(name, ""): _offset(style, value) for style in styles}
    for look in root.iter(f"{{{namespace}}}rPr"):
        style = next((reference.get(value, "") for reference in look.iterchildren("{*}rStyle")), "")
        if offset := _offset(look, value) or offsets.get(style) or offsets.get(bases.get(style, "")):
            look.append(look.makeelement(f"{{{namespace}}}vertAlign", {value: offset}))


def _offset(look: Element, value: str) -> str:
    """Return whether a look is superscript or subscript; LibreOffice states the position in half points."""
    offset = next((str(look.get(value, "")) for look in look.iter("{*}vertAlign", "{*}position")), "")
    if offset.isalpha() or offset.strip("-") in {"", "0", "1"}:
        return offset if offset.isalpha() else ""
    return "subscript" if offset.startswith("-") else "superscript"


def _insert_embedded(root: Element, package: Package, relations: dict[str, tuple[str, str]], namespace: str) -> None:
    """Insert the text of embedded files at the place where Word shows them."""
    for chunk in [*root.iter("{*}altChunk")]:
        _, target = relations.get(next(iter(chunk.attrib.values()), ""), ("", ""))
        _replace(chunk, [_paragraph(line, namespace) for line in _embedded_lines(package, target)])


def choose_alternatives(root: Element) -> None:
    """Replace alternatives of the same content, for newer and older programs, by the first one with text."""
    for alternatives in [*root.iter("{*}AlternateContent")]:
        branches = [*alternatives.iterchildren("{*}Choice"), *alternatives.iterchildren("{*}Fallback")]
        chosen = next((branch for branch in branches if "".join(branch.itertext("{*}t")).strip()), None)
        if chosen is None:
            chosen = branches[0] if branches else alternatives
        _replace(alternatives, [*chosen])


def _drawn_blocks(
    drawing: Element, package: Package, relations: dict[str, tuple[str, str]], namespace: str
) -> list[Element]:
    """Return paragraphs with the words of a drawing that are not Word text: of shapes, diagrams and charts."""
    lines = [*filter(None, (path.get("string") for path in drawing.iter("{*}textpath"))), *drawing_lines(drawing)]
    lines += dict.fromkeys(filter(None, map(description, drawing.iter("{*}docPr", "{*}cNvPr", "{*}shape"))))
    for reference in drawing.iter("{*}relIds", "{*}chart"):
        identifiers = [value for key, value in reference.attrib.items() if str(key).endswith(("}dm", "}id"))]
        for identifier in identifiers:
            _, target = relations.get(identifier, ("", ""))
            if target in package.names:
                lines += drawing_lines(package.xml(target))
    return [_paragraph(line, namespace) for line in lines]


def description(properties: Element) -> str:
    """Return the description of a picture or shape that a person wrote, "" if it is the name of the picture's file."""
    words = str(properties.get("descr") or properties.get("alt") or properties.get("title") or "").strip()
    return "" if words.lower().endswith(_PICTURES) else words


def drawing_lines(root: Element) -> list[str]:
    """Return the paragraphs of a shape, diagram or chart (DrawingML); each series of a chart is a paragraph."""
    lines = []
    for block in root.iter("{*}p", "{*}ser"):
        if str(block.tag).endswith("}p") and "drawingml" not in str(block.tag):
            continue
        if str(block.tag).endswith("}ser"):
            line = ", ".join(str(value.text or "") for value in block.iter("{*}v"))
        else:
            line = join_scripts(map(_piece, block.iter("{*}t", "{*}br", "{*}oMath")))
        if line.strip():
            lines.append(line)
    return lines


def _piece(part: Element) -> tuple[Script, str]:
    """Return a part of a line, and whether its run is raised or lowered; the signs of an equation are empty."""
    if "math" in str(part.tag):
        return "", linear_text(part) if str(part.tag).endswith("}oMath") else ""
    offset = str(part.getparent()[0].get("baseline", "")).strip("0%")  # the look of a run is its first child
    return ("sub" if offset.startswith("-") else "super") if offset else "", str(part.text or " ")


def _embedded_lines(package: Package, target: str) -> Iterable[str]:
    """Return the lines of a file that Word shows as a part of the document; empty if its kind is not supported."""
    if target not in package.names:
        return []
    if (page := embedded_page(target, package.read(target))) is not None:
        return filter(str.strip, BeautifulSoup(page, "lxml").get_text("\n").split("\n"))
    text = package.read(target).decode("utf-8", "replace") if target.endswith(".txt") else ""
    return filter(str.strip, text.split("\n"))


def embedded_page(name: str, content: bytes) -> bytes | str | None:
    """Return the HTML of an embedded file: its bytes, or the text of a web archive; None if it is of another kind."""
    if name.lower().endswith(_EMBEDDED_HTML):
        return content
    if not name.lower().endswith(_EMBEDDED_ARCHIVE):
        return None
    for part in email.message_from_bytes(content).walk():
        if part.get_content_type() == "text/html":
            page = part.get_payload(decode=True)
            return page.decode(part.get_content_charset("utf-8"), "replace") if isinstance(page, bytes) else None
    return None


def _paragraph(text: str, namespace: str) -> Element:
    paragraph = lxml.etree.Element(f"{{{namespace}}}p")
    paragraph.append(_run(text, namespace))
    return paragraph


def _run(text: str, namespace: str) -> Element:
    run = lxml.etree.Element(f"{{{namespace}}}r")
    lxml.etree.SubElement(run, f"{{{namespace}}}t").text = text
    return run


def _after_paragraph(element: Element, blocks: list[Element]) -> None:
    """Move blocks after the paragraph that contains an element, and after blocks that were moved there before."""
    paragraph = next(element.iterancestors("{*}p"), None)
    if paragraph is None or not blocks:
        return
    last = paragraph
    while (following := last.getnext()) is not None and following.get("moved") == "1":
        last = following
    for block in blocks:
        block.set("moved", "1")
        last.addnext(block)
        last = block


def _replace(element: Element, replacements: list[Element]) -> None:
    parent = element.getparent()
    for replacement in replacements:
        element.addprevious(replacement)
    parent.remove(element)


def _unwrap(element: Element) -> None:
    _replace(element, [*element])


def _remove(element: Element) -> None:
    element.getparent().remove(element)


def parse_docx(raw: bytes) -> ParsedFile:
    """Read a Word file as text.

    Text boxes follow their paragraph. Footnotes, headers, footers and comments are placed at the end. Text deleted
    under tracked changes is left out.
    """
    package = Package(raw, _KIND)
    main = package.main_part()
    try:
        page = mammoth.convert_to_html(io.BytesIO(rewrite(package, main))).value
    except (ExpatError, LookupError, ValueError, AttributeError, TypeError) as error:  # of mammoth, with damaged files
        raise UnreadableFile(f"is not {_KIND}, or is damaged") from error
    document = parse_markdown(to_markdown(page), converted=True)
    document = dataclasses.replace(document, title=package.title, metadata=package.metadata)
    parts = [package.read(main), *(package.read(name) for name in package.matching(f"{NOTES}|{DRAWN}"))]
    parts += [*distinct_parts(package, HEADERS), *distinct_parts(package, COMMENTS)]
    notes = [*package.notes]
    for kind, name in package.related(main).values():
        if kind != "aFChunk" or name not in package.names:
            continue
        content = package.read(name)
        page = content if name.endswith(".txt") else embedded_page(name, content)
        if page is None:
            notes.append(f"has an embedded document that is not read: {name}")
        else:
            parts.append(page.encode() if isinstance(page, str) else page)
    return ParsedFile([document], text_outside_tags(parts, _NO_TEXT), tuple(notes))
