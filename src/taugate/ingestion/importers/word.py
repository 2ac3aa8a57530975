"""Word files (.docx) to Markdown, with mammoth, which reads styles as headings, lists and tables."""

import dataclasses
import io
from xml.parsers.expat import ExpatError

import mammoth

from taugate.ingestion.importers.html_markdown import to_markdown
from taugate.ingestion.importers.markdown import parse_markdown
from taugate.ingestion.importers.office_package import Package, text_outside_tags
from taugate.ingestion.importers.word_parts import (
    COMMENTS,
    DRAWN,
    HEADERS,
    NOTES,
    distinct_parts,
    embedded_page,
    rewrite,
)
from taugate.ingestion.parsed import ParsedFile, UnreadableFile

_KIND = "a Word file"
# Content that is not text: deleted text, field codes, positions of drawings, and alternatives for older programs.
_NO_TEXT = (
    r"<(?P<tag>w:del|w:moveFrom|w:delText|w:instrText|w:fldData|mc:Fallback|c:f|c:formatCode|wp:align|wp:posOffset|"
    r"wp14:\w+|a:ext|o:\w+)(?:\s[^<>]*)?(?<!/)>.*?</(?P=tag)>"
)


def parse_docx(raw: bytes) -> ParsedFile:
    """Read a Word file as text.

    Text boxes follow their paragraph. Footnotes, headers, footers and comments are placed at the end. Text deleted
    under tracked changes is left out.

    Raises:
        UnreadableFile: If it is not a Word file, or unpacks to more than 512 MiB.
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
