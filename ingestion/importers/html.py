"""HTML to Markdown: what the page says, without its navigation, headers, footers and scripts.

Beautiful Soup and markdownify kept every heading of 24 pages of Debian's documentation; trafilatura lost those of 17
pages, and up to 59 % of the words (docs/dependencies.md).
"""

import dataclasses
import re
import warnings

from bs4 import BeautifulSoup, Tag, XMLParsedAsHTMLWarning
from markdownify import markdownify

from taugate.ingestion.importers.markdown import parse_markdown
from taugate.ingestion.importers.metadata_values import split_tags, tags
from taugate.ingestion.parsed import ParsedFile, UnreadableFile
from taugate.retrieval.documents.store import MetadataValue

# XHTML is HTML to whoever reads it.
warnings.filterwarnings("ignore", category=XMLParsedAsHTMLWarning)

_NOT_CONTENT = (
    "script, style, template, noscript, iframe, svg, form, button, nav, aside, head, [hidden], [aria-hidden=true], "
    "[role=navigation], [role=search], [role=banner], [role=contentinfo], "
    "body > header, body > footer, .sphinxsidebar, .navheader, .navfooter, .headerlink, .related"
)
_CONTENT = ("main", "[role=main]", "article")
_CREATED = ("article:published_time", "date", "dcterms.created", "dc.date")
_MODIFIED = ("article:modified_time", "last-modified", "dcterms.modified")
_KEYWORDS = ("keywords", "article:tag", "dcterms.subject", "dc.subject")
# A list or table is navigation where at least this share of its letters are links, and it has this many of them.
_LINK_SHARE, _FEWEST_LINKS = 0.8, 3
_DEEPEST = 250  # markdownify recurses three calls a level; pages written by people stay below 50


def parse_html(raw: bytes) -> ParsedFile:
    """Read a page as text.

    raw: its bytes; the encoding is taken from its declaration or detected. Raises UnreadableFile where
    elements are nested too deeply.
    """
    page = BeautifulSoup(raw, "lxml")
    if _depth(page) > _DEEPEST:
        raise UnreadableFile("is nested too deeply")
    title = " ".join(page.title.get_text().split()) if page.title else ""
    metadata = _facts(page)
    source_text = ""  # TODO: base for the HTML work
    for element in page.select(_NOT_CONTENT):
        element.decompose()
    content = next((found for each in _CONTENT if (found := page.select_one(each))), page.body or page)
    _remove_link_lists(content)
    document = parse_markdown(to_markdown(str(content)))
    return ParsedFile([dataclasses.replace(document, title=title, metadata=metadata)], source_text)


def _depth(page: Tag) -> int:
    """Return how deeply elements are nested, without recursion."""
    deepest, level = 0, [page]
    while level := [child for element in level for child in element.children if isinstance(child, Tag)]:
        deepest += 1
    return deepest


def to_markdown(html: str) -> str:
    """Return HTML as Markdown, without images and without the targets of links."""
    return str(
        markdownify(html, heading_style="ATX", strip=["a", "img"], escape_asterisks=False, escape_underscores=False)
    )


def _remove_link_lists(content: Tag) -> None:
    """Remove lists and tables of links, such as menus, unless they are most of the page: then it is an index."""
    letters = len(content.get_text())
    menus = [each for each in content.select("ul, ol, table, dl") if _is_menu(each)]
    outermost = [menu for menu in menus if not any(menu in other.descendants for other in menus if other is not menu)]
    if 2 * sum(len(menu.get_text()) for menu in outermost) <= letters:
        for menu in outermost:
            menu.decompose()


def _is_menu(element: Tag) -> bool:
    links = element.select("a[href]")
    words = len(re.sub(r"\s", "", element.get_text()))
    linked = sum(len(re.sub(r"\s", "", link.get_text())) for link in links)
    return len(links) >= _FEWEST_LINKS and linked >= _LINK_SHARE * words


def _facts(page: BeautifulSoup) -> dict[str, MetadataValue]:
    """Return the dates and keywords that a page declares, the latter as tags."""
    found: dict[str, MetadataValue] = {}
    keywords: list[str] = []
    for meta in page.select("meta[content]"):
        key = str(meta.get("property") or meta.get("name") or meta.get("http-equiv") or "").lower()
        content = str(meta["content"]).strip()
        if key in _KEYWORDS:
            keywords += split_tags(content) or []
        for name, keys in (("created", _CREATED), ("modified", _MODIFIED)):
            if key in keys and re.match(r"\d{4}-\d\d-\d\d", content):
                found.setdefault(name, content[:10])
    if keywords:
        found["tags"] = tags(keywords)
    return found
