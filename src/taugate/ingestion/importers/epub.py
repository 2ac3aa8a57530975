"""Books (.epub): their chapters, each an XHTML page, in reading order."""

import dataclasses
import posixpath
from urllib.parse import unquote

from taugate.ingestion.importers.html import parse_html
from taugate.ingestion.importers.office_package import Package
from taugate.ingestion.parsed import ParsedDocument, ParsedFile, UnreadableFile

_CONTAINER = "META-INF/container.xml"


def parse_epub(raw: bytes) -> ParsedFile:
    """Read a book, one document per chapter.

    Raises:
        UnreadableFile: If the file is damaged or holds no text.
    """
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
