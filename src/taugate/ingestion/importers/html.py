"""HTML to Markdown: the content of a page, without its navigation, headers, footers and scripts.

Everything else is kept, even if it is hidden until the reader acts: collapsed panels, tabs, buttons, forms, side notes.
Extractors of articles kept less of reference pages (docs/dependencies.md).
"""

import dataclasses
import re
import warnings

from bs4 import BeautifulSoup, XMLParsedAsHTMLWarning

from taugate.ingestion.importers.html_encoding import decode_page
from taugate.ingestion.importers.html_markdown import parse_page, to_markdown
from taugate.ingestion.importers.html_navigation import is_closed, remove_navigation
from taugate.ingestion.importers.html_source import mend, read_source
from taugate.ingestion.importers.markdown import parse_markdown
from taugate.ingestion.importers.metadata_values import split_tags, tags
from taugate.ingestion.parsed import ParsedFile
from taugate.retrieval.documents.store import MetadataValue

__all__ = ["parse_html", "to_markdown"]

# XHTML is read as HTML.
warnings.filterwarnings("ignore", category=XMLParsedAsHTMLWarning)

_CREATED = ("article:published_time", "date", "dcterms.created", "dc.date")
_MODIFIED = ("article:modified_time", "last-modified", "dcterms.modified")
_KEYWORDS = ("keywords", "article:tag", "dcterms.subject", "dc.subject")


def parse_html(raw: bytes, label: str = "") -> ParsedFile:
    """Read a page as text.

    Args:
        raw: Content of the page.
        label: As in `decode_page`.

    Raises:
        UnreadableFile: If elements are nested too deeply, or the bytes are not text.
    """
    decoded = decode_page(raw, label)
    source = mend(decoded.text)
    page = parse_page(source)
    title = next((element for element in page.find_all("title") if not element.find_parent("svg")), None)
    name = " ".join(title.get_text().split()) if title else ""
    metadata = _facts(page)
    for element in [*page.find_all(["script", "style"]), *([title] if title else [])]:
        element.decompose()
    # Browsers do not show templates; one that is not closed holds the rest of the page.
    templates = page.find_all("template", shadowrootmode=False) if is_closed("template", source) else []
    outer = [template for template in templates if not template.find_parent("template")]
    left_out = [*(read_source(str(template.extract())) for template in outer), remove_navigation(page, source)]
    document = parse_markdown(to_markdown(page), converted=True)
    document = dataclasses.replace(document, title=name, metadata=metadata)
    return ParsedFile([document], read_source(decoded.text), decoded.notes, "\n".join(left_out))


def _facts(page: BeautifulSoup) -> dict[str, MetadataValue]:
    """Return the dates and keywords that a page declares, the latter as tags."""
    facts: dict[str, MetadataValue] = {}
    keywords: list[str] = []
    for meta in page.find_all("meta", content=True):
        key = str(meta.get("property") or meta.get("name") or meta.get("http-equiv") or "").lower()
        content = str(meta["content"]).strip()
        if key in _KEYWORDS:
            keywords += split_tags(content) or []
        for name, keys in (("created", _CREATED), ("modified", _MODIFIED)):
            if key in keys and re.match(r"\d{4}-\d\d-\d\d", content):
                facts.setdefault(name, content[:10])
    if keywords:
        facts["tags"] = tags(keywords)
    return facts
