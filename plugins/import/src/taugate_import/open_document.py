"""Texts and presentations of OpenDocument (.odt, .odp), the format of LibreOffice."""

from collections.abc import Iterator
from itertools import groupby, takewhile
from typing import Any

from taugate.data.parsed import ParsedFile, TextBuilder, UnreadableFile
from taugate_import.office_package import Package, text_outside_tags
from taugate_import.word_share import Script, join_scripts

Element = Any  # lxml has no public type for an element

_KIND = "an OpenDocument file"
_CONTENT, _STYLES = "content.xml", "styles.xml"
# Elements within a paragraph that are not part of its sentence.
_APART = {"note", "annotation", "text-box", "table", "object", "custom-shape", "p", "h", "list", "desc"}
_NO_TEXT = (
    r"<(?P<tag>text:tracked-changes|office:styles|office:automatic-styles|office:font-face-decls|office:scripts|"
    r"text:note-citation|text:sequence-decls|text:page-number|presentation:(?:footer|header|date-time)-decl|dc:creator|"
    r"dc:date|meta:creator-initials|"
    r"office:binary-data|svg:title|svg:desc)\b[^<>]*(?<!/)>.*?</(?P=tag)>"
)
_LEFT_OUT = {"tracked-changes", "note-citation", "page-number", "creator", "date", "creator-initials", "binary-data"}


def parse_open_document(raw: bytes) -> ParsedFile:
    """Read a text or presentation, with notes, comments and text boxes after their paragraph.

    Headers and footers are placed at the end.
    """
    package = Package(raw, _KIND)
    reader = _Reader(package)
    content = package.xml(_CONTENT)
    styles = package.xml(_STYLES) if _STYLES in package.names else None
    _mark_scripts(content, styles)
    body = next(content.iter("{*}body"), None)
    if body is None:
        raise UnreadableFile(f"is not {_KIND}, or is damaged")
    reader.read(body)
    source = [package.read(_CONTENT), *(package.read(name) for name in reader.objects)]
    if styles is not None:
        _mark_scripts(styles, None)
        for element in styles.iter("{*}header", "{*}footer", "{*}header-left", "{*}footer-left"):
            reader.read(element)
            reader.headers.append("\n".join(_texts(element)))
    document = reader.builder.document(reader.title)
    if not document.text:
        raise UnreadableFile("holds no text")
    return ParsedFile([document], "\n".join([text_outside_tags(source, _NO_TEXT), *reader.headers]), package.notes)


class _Reader:
    """Collects the blocks of a document."""

    def __init__(self, package: Package) -> None:
        self.builder = TextBuilder()
        self.objects: list[str] = []
        self.headers: list[str] = []
        self.title = ""
        self._package = package
        self._path: list[tuple[int, str]] = []
        self._page: int | None = None

    def read(self, element: Element) -> None:
        """Add the content of an element."""
        name = _name(element)
        if name in _LEFT_OUT:
            return
        if name == "page":
            self._page = (self._page or 0) + 1
        if name == "frame" and _attribute(element, "class") == "title":
            self._path = []
            self._add_heading(element, " ".join(" ".join(map(_line, element.iter("{*}p"))).split()))
            return
        if name == "h":
            self._add_heading(element, " ".join(_line(element).split()))
        elif name in {"p", "desc"}:
            self._add(_line(element), "prose")
        elif name == "table":
            self._add(_table(element), "table")
        elif name == "list":
            self._add_list(element)
        elif name == "object":
            self._add_object(element)
        if name in {"p", "h", "table"}:
            for child in _apart(element, nested=name != "table"):
                self.read(child)
        elif name not in {"list", "object"}:
            for child in element.iterchildren("*"):
                self.read(child)

    def _add(self, text: str, kind: Any) -> None:  # noqa: ANN401 (a kind of block)
        self.builder.add(text, kind, tuple(heading for _, heading in self._path), self._page)

    def _add_heading(self, element: Element, text: str) -> None:
        if not text:
            return
        level = int(_attribute(element, "outline-level") or "1")
        self._path = [(above, heading) for above, heading in self._path if above < level] + [(level, text)]
        self._add(f"{'#' * min(level, 6)} {text}", "heading")

    def _add_list(self, element: Element) -> None:
        """Add a list, with what is set apart in it, such as tables, at its place."""
        for is_text, parts in groupby(_list_parts(element), key=lambda part: isinstance(part, str)):
            if is_text:
                self._add("\n".join(parts), "prose")
            else:
                for part in parts:
                    self.read(part)

    def _add_object(self, element: Element) -> None:
        """Add an equation as it was typed, or the words of a chart or an embedded document."""
        target = _attribute(element, "href")
        name = f"{target.removeprefix('./')}/{_CONTENT}"
        if name not in self._package.names or name in self.objects:
            return
        content = self._package.xml(name)
        if equation := "\n".join(map(str, content.itertext("{*}annotation"))):
            self._add(equation, "prose")
            return
        self.objects.append(name)
        for body in content.iter("{*}body"):
            self.read(body)


def _name(element: Element) -> str:
    namespace, _, name = str(element.tag).rpartition("}")
    return "desc" if "svg" in namespace else name  # title and description of a picture


def _mark_scripts(root: Element, styles: Element | None) -> None:
    """Mark the spans of a part that are superscript or subscript by their style."""
    declared = [style for part in (styles, root) if part is not None for style in part.iter("{*}style")]
    parents = {_attribute(style, "name"): _attribute(style, "parent-style-name") for style in declared}
    offsets = {
        _attribute(style, "name"): "".join(_attribute(look, "text-position") for look in style) for style in declared
    }
    for span in root.iter("{*}span"):
        style = _attribute(span, "style-name")
        if offset := offsets.get(style) or offsets.get(parents.get(style, "")):
            span.set("script", "" if offset[:1] == "0" else "sub" if offset.startswith(("-", "sub")) else "super")


def _attribute(element: Element, name: str) -> str:
    """Return an attribute of any namespace, empty if it is missing."""
    return next((str(value) for key, value in element.attrib.items() if str(key).endswith(f"}}{name}")), "")


def _line(element: Element) -> str:
    """Return the text of a paragraph without elements that are set apart."""
    return join_scripts(_pieces(element, "")).strip("\n")


def _pieces(element: Element, script: Script) -> Iterator[tuple[Script, str]]:
    script = element.get("script", script)
    yield script, element.text or ""
    for child in element.iterchildren():
        name = _name(child) if isinstance(child.tag, str) else ""
        if name in {"s", "tab"}:
            yield script, " "
        elif name == "line-break":
            yield script, "\n"
        elif name and name not in _APART and name not in _LEFT_OUT:
            yield from _pieces(child, script)
        yield script, child.tail or ""


def _apart(element: Element, *, nested: bool) -> Iterator[Element]:
    """Yield elements that are set apart within a block."""
    for child in element.iterchildren("*"):
        name = _name(child)
        if name in _APART and (nested or name not in {"p", "h", "list", "table"}):
            yield child
        elif name not in _LEFT_OUT:
            yield from _apart(child, nested=nested and name not in {"p", "h"})


def _texts(element: Element) -> Iterator[str]:
    """Yield the paragraphs of an element, at any depth."""
    for paragraph in element.iter("{*}p", "{*}h"):
        above = takewhile(lambda outer: outer is not element, paragraph.iterancestors())
        if {"note", "annotation", "text-box"}.isdisjoint(map(_name, above)):
            yield _line(paragraph)


def _list_parts(element: Element, depth: int = 0) -> Iterator[Any]:
    """Yield the lines of a list, and elements that are set apart after their line."""
    for item in element.iterchildren("{*}list-item", "{*}list-header"):
        for child in item.iterchildren("*"):
            if _name(child) == "list":
                yield from _list_parts(child, depth + 1)
            elif _name(child) in {"p", "h"}:
                yield f"{'  ' * depth}- {_line(child)}"
                yield from _apart(child, nested=True)
            elif next(child.iter("{*}p", "{*}h"), None) is not None:
                yield child


def _table(table: Element) -> str:
    """Return a table as Markdown; tables within it are part of their cell."""
    rows = []
    for row in table.iter("{*}table-row"):
        if next(row.iterancestors("{*}table"), None) is table:
            cells = row.iterchildren("{*}table-cell")
            rows.append(f"| {' | '.join(' '.join(' '.join(_texts(cell)).split()) for cell in cells)} |")
    return "\n".join([*rows[:1], "|" + " --- |" * (rows[0].count(" | ") + 1), *rows[1:]]) if rows else ""
