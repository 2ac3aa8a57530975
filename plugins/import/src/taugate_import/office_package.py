"""Zip archives of office programs and books (.docx, .xlsx, .pptx, .odt, .epub): access to their parts."""

import dataclasses
import html
import io
import posixpath
import re
import zipfile
from collections.abc import Iterable
from functools import cached_property, partial
from typing import Any
from urllib.parse import unquote

import lxml.etree

from taugate.data.parsed import ParsedDocument, ParsedFile, UnreadableFile
from taugate.retrieval.documents.store import MetadataValue
from taugate_import.html import parse_html
from taugate_import.values import split_tags
from taugate_import.word_share import set_apart

_MAX_UNPACKED = 512 << 20  # a small archive may unpack to any size
_OLE = b"\xd0\xcf\x11\xe0"  # start of office files with a password, and of older formats
_PROPERTIES = "docProps/core.xml"
_SHOWN = 5  # missing parts named in a note

_CONTAINER = "META-INF/container.xml"


class Package:
    """The parts of an office file."""

    def __init__(self, raw: bytes, kind: str) -> None:
        """Open a file."""
        self._kind = kind
        if raw.startswith(_OLE):
            raise UnreadableFile("is encrypted or of an old format; save it in the current format without a password")
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(raw))
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise UnreadableFile(f"is not {kind}, or is damaged") from error
        members = self._archive.infolist()
        if sum(member.file_size for member in members) > _MAX_UNPACKED:
            raise UnreadableFile(f"unpacks to more than {_MAX_UNPACKED >> 20} MiB")
        self.names = [member.filename for member in members]

    def read(self, name: str) -> bytes:
        """Return the bytes of a part."""
        try:
            return self._archive.read(name)
        except RuntimeError as error:
            raise UnreadableFile("is encrypted; save it without a password") from error
        except Exception as error:  # zipfile raises errors of many kinds for damaged archives
            raise UnreadableFile(f"is not {self._kind}, or is damaged") from error

    def xml(self, name: str) -> Any:  # noqa: ANN401 (lxml has no public type for an element)
        """Return the root element of a part."""
        return self.parse(self.read(name))

    def parse(self, content: bytes) -> Any:  # noqa: ANN401 (lxml has no public type for an element)
        """Return the root element of XML."""
        try:
            return lxml.etree.fromstring(content, lxml.etree.XMLParser(resolve_entities=False, no_network=True))
        except lxml.etree.XMLSyntaxError as error:
            raise UnreadableFile(f"is not {self._kind}, or is damaged") from error

    def related(self, part: str) -> dict[str, tuple[str, str]]:
        """Return the parts named by a part: by id, the last word of the kind, and the name."""
        folder, name = posixpath.split(part)
        relations = posixpath.join(folder, "_rels", f"{name}.rels")
        if relations not in self.names:
            return {}
        return {
            relation.get("Id", ""): (
                relation.get("Type", "").rpartition("/")[2],
                posixpath.normpath(posixpath.join("/", folder, relation.get("Target", ""))).lstrip("/"),
            )
            for relation in self.xml(relations).iter("{*}Relationship")
            if relation.get("TargetMode") != "External"
        }

    def main_part(self) -> str:
        """Return the name of the part that holds the document."""
        for kind, name in self.related("").values():
            if kind == "officeDocument" and name in self.names:
                return name
        raise UnreadableFile(f"is not {self._kind}, or is damaged")

    def matching(self, pattern: str) -> list[str]:
        """Return the names of parts that match a regular expression, with numbers in numerical order."""
        names = [name for name in self.names if re.fullmatch(pattern, name)]
        return sorted(names, key=lambda name: [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", name)])

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes as in `ParsedFile`: parts that the file names but does not contain."""
        content_types = "[Content_Types].xml"
        if content_types not in self.names:
            return ()
        listed = [part.get("PartName", "").lstrip("/") for part in self.xml(content_types).iter("{*}Override")]
        missing = [name for name in listed if name not in self.names]
        ellipsis = ", …" if len(missing) > _SHOWN else ""
        return (f"lacks some of its parts: {', '.join(missing[:_SHOWN])}{ellipsis}",) if missing else ()

    @cached_property
    def title(self) -> str:
        """The title in its properties, or ""."""
        return _property(self._properties, "dc:title")

    @cached_property
    def metadata(self) -> dict[str, MetadataValue]:
        """The dates and keywords in its properties, the keywords as tags."""
        dates = {name: _property(self._properties, f"dcterms:{name}")[:10] for name in ("created", "modified")}
        valid = {name: date for name, date in dates.items() if re.fullmatch(r"\d{4}-\d\d-\d\d", date)}
        keywords = split_tags(_property(self._properties, "cp:keywords"))
        return {**valid, "tags": keywords} if keywords else {**valid}

    @cached_property
    def _properties(self) -> str:
        return self.read(_PROPERTIES).decode("utf-8", "replace") if _PROPERTIES in self.names else ""


def _property(xml: str, name: str) -> str:
    value = re.search(rf"<{name}\b[^>]*>([^<]*)</{name}>", xml)
    return html.unescape(value[1]).strip() if value else ""


# Tags that divide words; others may occur within a word, as for bold letters.
_BREAK = re.compile(
    r"</?(?:[\w.-]+:)?(?:p|h|tab|br|cr|tc|tr|s|si|row|c|line-break|table-cell|pt|ser|sym|ptab|noBreakHyphen)\b[^>]*>|</?m:[^>]*>"
)
_TAG = re.compile(r"<[^>]*>")
_RUN = re.compile(r"<(w:r|a:r|text:span)\b[^<>]*>[^<]*(?:<(?!/?\1\b)[^<]*)*</\1>")
_RAISED_STYLE = re.compile(
    r'<style:style\b[^<>]*?\bstyle:name="([^"]*)"[^<>]*>\s*<style:text-properties\b[^<>]*?\btext-position="(?:super|[1-9])'
)
_RAISED = r'<w:vertAlign\s+w:val="superscript"|<a:rPr\b[^<>]*?\bbaseline="[1-9]'


def _set_apart_if(raised: re.Pattern[str], run: re.Match[str]) -> str:
    return set_apart(run) if raised.search(run[0]) else run[0]


def text_outside_tags(parts: Iterable[bytes], left_out: str) -> str:
    """Return all text outside of the tags of XML parts, found by a search for tags."""
    texts = []
    for part in parts:
        xml = part.decode("utf-16" if part[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8", "replace")
        xml = re.sub(rf"<\?.*?\?>|<!--.*?-->|{left_out}", " ", xml, flags=re.DOTALL)
        styled = "".join(rf'|text:style-name="{re.escape(name)}"' for name in _RAISED_STYLE.findall(xml))
        xml = _RUN.sub(partial(_set_apart_if, re.compile(_RAISED + styled)), xml)
        texts.append(html.unescape(_TAG.sub("", _BREAK.sub(" ", xml))))
    return "\n".join(texts)


def parse_epub(raw: bytes) -> ParsedFile:
    """Read a book, one document per chapter."""
    package = Package(raw, "a book")
    opf = next((root.get("full-path", "") for root in package.xml(_CONTAINER).iter("{*}rootfile")), "")
    book = package.xml(opf)
    title = " ".join("".join(next((element.itertext() for element in book.iter("{*}title")), iter(()))).split())
    targets = {item.get("id"): unquote(item.get("href", "")) for item in book.iter("{*}item")}
    names = [
        posixpath.normpath(posixpath.join(posixpath.dirname(opf), targets.get(item.get("idref"), "")))
        for item in book.iter("{*}itemref")
    ]
    documents: list[ParsedDocument] = []
    source, notes, left_out = [], [], []
    for name in dict.fromkeys(names):
        if name not in package.names:
            notes.append(f"lacks a chapter: {name}")
            continue
        chapter = parse_html(package.read(name))
        heading = chapter.documents[0].title
        documents.append(
            dataclasses.replace(
                chapter.documents[0], key=name, title=" > ".join(dict.fromkeys(filter(None, [title, heading])))
            )
        )
        source.append(chapter.source_text)
        left_out.append(chapter.left_out)
    if not any(document.text for document in documents):
        raise UnreadableFile("holds no text")
    return ParsedFile(documents, "\n".join(source), tuple(notes), "\n".join(left_out))
