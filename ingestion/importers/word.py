"""Word files (.docx) to Markdown, with mammoth, which reads styles as headings, lists and tables."""

import dataclasses
import html
import io
import re
import zipfile

import mammoth

from taugate.ingestion.importers.html import to_markdown
from taugate.ingestion.importers.markdown import parse_markdown
from taugate.ingestion.importers.metadata_values import split_tags
from taugate.ingestion.parsed import ParsedFile, UnreadableFile
from taugate.retrieval.documents.store import MetadataValue

_MAX_UNPACKED = 512 << 20  # a .docx is a zip archive, and a small one may unpack to any size
_PROPERTIES = "docProps/core.xml"


def parse_docx(raw: bytes) -> ParsedFile:
    """Read a Word file as text.

    raw: its bytes. Raises UnreadableFile where it is no Word file, or unpacks to more than 512 MiB.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MAX_UNPACKED:
                raise UnreadableFile("unpacks to more than 512 MiB")
            names = archive.namelist()
            properties = archive.read(_PROPERTIES).decode("utf-8", "replace") if _PROPERTIES in names else ""
        page = mammoth.convert_to_html(io.BytesIO(raw)).value
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise UnreadableFile("is not a Word file, or a damaged one") from error
    document = parse_markdown(to_markdown(page))
    document = dataclasses.replace(document, title=_property(properties, "dc:title"), metadata=_metadata(properties))
    return ParsedFile([document], document.text)  # TODO: base for the Word work


def _property(xml: str, name: str) -> str:
    found = re.search(rf"<{name}\b[^>]*>([^<]*)</{name}>", xml)
    return html.unescape(found[1]).strip() if found else ""


def _metadata(xml: str) -> dict[str, MetadataValue]:
    """Return the dates and keywords of a file, the latter as tags."""
    dates = {name: _property(xml, f"dcterms:{name}")[:10] for name in ("created", "modified")}
    found = {name: date for name, date in dates.items() if re.fullmatch(r"\d{4}-\d\d-\d\d", date)}
    keywords = split_tags(_property(xml, "cp:keywords"))
    return {**found, "tags": keywords} if keywords else {**found}
