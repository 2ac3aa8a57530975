"""HTML to Markdown: the content of a page in any encoding, without its navigation, headers, footers and scripts.

Decoding of web pages, by the label that the page gives its encoding. Labels have the meaning of the WHATWG Encoding
Standard: gb2312 is GBK, iso-8859-1 is windows-1252, and utf-16 in a page whose label could be read is UTF-8. Pages
whose bytes contradict their label are decoded by the bytes.

Navigation of a web page, which readers do not miss: menus, banners and footers. An element is left out only if the page
itself declares it so (`nav`, `header`, a role), or if two signs agree: its words are links, and its class says so or it
is above the title. The removed text is returned, so that it is not counted as lost. Lists of tabs are part of the
content, in any element.

Everything else is kept, even if it is hidden until the reader acts: collapsed panels, tabs, buttons, forms, side notes.
Extractors of articles kept less of reference pages (docs/dependencies.md).
"""

import codecs
import dataclasses
import re
import warnings
from collections.abc import Iterable

import webencodings
from bs4 import BeautifulSoup, Tag, XMLParsedAsHTMLWarning

from taugate.data.parsed import ParsedFile
from taugate.retrieval.documents.store import MetadataValue
from taugate_import.html_markdown import mend, parse_page, read_source, to_markdown
from taugate_import.markdown import parse_markdown
from taugate_import.plain_text import (
    DecodedText,
    Encoding,
    decode,
    encoding_notes,
    guess_encoding,
    is_utf8,
    marked_encoding,
    printable_text,
)
from taugate_import.values import split_tags, tags

_HEAD = 1 << 14  # bytes searched for the label; browsers search the first 1,024, and correct the encoding later
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_META = re.compile(rb"<meta\b([^>]*)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(rb"""([^\s"'>/=]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_CHARSET = re.compile(rb"""charset\s*=\s*["']?\s*([^\s"';>]+)""", re.IGNORECASE)
_XML = re.compile(rb"""^\s*<\?xml\b[^>]*?\bencoding\s*=\s*["']([^"']+)""")
_OF_LETTERS = re.compile(r"(cp|iso|mac|koi|hp|tis|euc|big5|gb|hz|johab|utf-7)")
_JAPANESE = re.compile(r"(?:cp|x-windows-)5022\d|iso-2022-jp-(?:1|ms|ext)")  # of mails
_ALWAYS_UTF8 = ("utf-16le", "utf-16be")  # a label that can be read as ASCII is not in UTF-16
_OF_SEVERAL_BYTES = {"gbk", "gb18030", "big5hkscs", "cp932", "cp949", "euc_jp", "iso2022_jp", "iso2022_kr", "hz"}

_NAMED = {"nav", "header", "footer"}
_ROLES = {"navigation", "search", "banner", "contentinfo"}
_CONTENT = {"main", "article"}
# Headers and footers within these belong to them, not to the page.
_SECTIONS = _CONTENT | {"aside", "section", "blockquote", "details", "dialog", "fieldset", "figure", "td"}
_LISTS = {"ul", "ol", "dl", "div", "table", "aside", "section", "p"}
_ABOVE_TITLE = ["ul", "ol", "dl", "table"]
_LIST_NAME = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|menus?|sidebar|breadcrumbs?|pager|pagination)(?:[\s_-]|$)", re.IGNORECASE
)
_CLASSES = {"mw-editsection", "mw-jump-link", "navheader", "navfooter", "docnav"}  # of MediaWiki, DocBook, Publican
_TOC_NAME = re.compile(r"(?:^|[\s_-])toc(?:[\s_-]|$)", re.IGNORECASE)
_TAB_NAME = re.compile(r"(?:^|[\s_-])tabs?(?:[\s_-]|$)", re.IGNORECASE)
_LINK_SHARE, _MIN_LINKS = 0.8, 3  # of a list of links: of its letters, and links
_MAX_SHARE = 1 / 3  # of a page's letters that may be a header or footer
_MAX_LABEL = 2  # words of a link in a menu
_MAX_PROSE = 200  # letters beside the links of a menu
_MIN_ANSWER = 10  # letters beside the links of a panel that opens at a click
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6", "dt"}
_MAX_BANNER = 600  # letters beside the links of a banner or footer
_MIN_LEFT, _MIN_LETTERS_LEFT = 0.05, 40  # of a page's letters: with less beside its menus, the menus are the page

# XHTML is read as HTML.
warnings.filterwarnings("ignore", category=XMLParsedAsHTMLWarning)

_CREATED = ("article:published_time", "date", "dcterms.created", "dc.date")
_MODIFIED = ("article:modified_time", "last-modified", "dcterms.modified")
_KEYWORDS = ("keywords", "article:tag", "dcterms.subject", "dc.subject")


def decode_page(raw: bytes, label: str = "") -> DecodedText:
    """Decode a page by its byte order mark, its label, or in the most likely encoding.

    Args:
        label: Label of its encoding that was sent with the page, and comes before its own.
    """
    encoding, notes = choose_encoding(raw, [label, _label(raw[:_HEAD]) or ""])
    return DecodedText(printable_text(decode(raw, encoding.codec)), notes)


def choose_encoding(raw: bytes, labels: Iterable[str]) -> tuple[Encoding, tuple[str, ...]]:
    """Return the encoding of a text, and notes on it as in `DecodedText`."""
    if marked := marked_encoding(raw):
        return marked, ()
    for label in labels:
        if labelled := _labelled_encoding(label):
            encoding = _corrected(raw, labelled)
            if encoding != labelled:
                return encoding, (f"is labelled as {label} but read as {encoding.name}",)
            return encoding, encoding_notes(raw, encoding) if encoding.codec == "utf-8" else ()
    encoding = guess_encoding(raw)
    return encoding, encoding_notes(raw, encoding)


def _label(head: bytes) -> str | None:
    """Return the label of a page's encoding: that of its XML declaration or of the first `meta` with a label."""
    if declared := _XML.match(head):
        return declared[1].decode("ascii", "replace").strip()
    for meta in _META.finditer(_COMMENT.sub(b"", head)):
        attributes = {name.lower(): b"".join(values) for name, *values in _ATTRIBUTE.findall(meta[1])}
        if charset := attributes.get(b"charset"):
            return charset.decode("ascii", "replace").strip()
        if attributes.get(b"http-equiv", b"").strip().lower() == b"content-type":
            charset_of_content = _CHARSET.search(attributes.get(b"content", b""))
            if charset_of_content:
                return charset_of_content[1].decode("ascii", "replace").strip()
    return None


def _labelled_encoding(label: str) -> Encoding | None:
    """Return the encoding of a label, None if the label is unknown.

    Labels that are not in the standard, such as ibm850, or banned by it, are looked up in Python.
    """
    standard = webencodings.lookup("iso-2022-jp" if _JAPANESE.fullmatch(label.lower()) else label)
    if standard is not None and standard.name in _ALWAYS_UTF8:
        return Encoding("utf-8", "utf-8")
    if standard is not None and standard.name == "x-user-defined":
        return Encoding("cp1252", "windows-1252")
    if standard is not None and standard.name != "replacement":
        codec = "gb18030" if standard.name == "gbk" else standard.codec_info.name
        return Encoding(codec, standard.name)
    try:
        codec = codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    return Encoding(codec, label.lower()) if _OF_LETTERS.match(codec) else None


def _corrected(raw: bytes, labelled: Encoding) -> Encoding:
    """Return the encoding of a page: the labelled one unless the bytes contradict it.

    A page that is UTF-8 throughout is in no other encoding, and a page with mostly invalid bytes is not UTF-8.
    """
    has_escapes = b"\x1b$" in raw
    without = labelled.codec in {"utf-8", "cp1252"} and has_escapes and raw.isascii()
    if b"\x00" in raw or without or (labelled.codec == "iso2022_jp" and not has_escapes and not raw.isascii()):
        return guess_encoding(raw)
    if raw.isascii() and labelled.codec not in {"iso2022_jp", "iso2022_kr", "hz"}:
        return Encoding("utf-8", "utf-8") if labelled.codec == "utf-8" else labelled
    if labelled.codec == "utf-8":
        return labelled if is_utf8(raw) else guess_encoding(raw)
    try:
        raw.decode()
    except UnicodeDecodeError:
        return labelled
    if raw.isascii() or (labelled.codec in _OF_SEVERAL_BYTES and "\ufffd" not in decode(raw, labelled.codec)):
        return labelled
    return Encoding("utf-8", "utf-8")


def remove_navigation(page: Tag, source: str) -> str:
    """Remove the menus, banners and footers of a page, and return their words.

    If almost no text would be left, nothing is removed. A banner with the page's title is kept, without its menus.

    Args:
        source: Source of the page. Elements that it does not close are ignored, as they contain the rest of the page.
    """
    letters = _letters(page)
    closed = {name for name in _NAMED if is_closed(name, source)}
    elements = [
        element
        for element in page.find_all(True)
        if (element.name not in _NAMED or element.name in closed) and _is_navigation(element, letters)
    ]
    if title := page.find("h1"):
        lists = (element for element in title.find_all_previous(_ABOVE_TITLE) if element not in title.parents)
        elements += [element for element in lists if _is_of_links(element) and not _is_within(element, _CONTENT)]
    chosen = set(map(id, elements))
    outermost = [element for element in elements if not any(id(parent) in chosen for parent in element.parents)]
    if letters - sum(map(_letters, outermost)) < max(_MIN_LEFT * letters, _MIN_LETTERS_LEFT):
        return ""
    unique = {id(element): element for element in outermost}.values()
    return "\n".join(read_source(str(element.extract())) for element in unique)


def is_closed(name: str, source: str) -> bool:
    """Return whether each element of a name is closed."""
    return source.count(f"<{name}") <= source.count(f"</{name}")


def _letters(element: Tag) -> int:
    return sum(map(str.isalnum, element.get_text()))


def _linked(element: Tag) -> int:
    return sum(_letters(link) for link in element.find_all("a", href=True))


def _is_navigation(element: Tag, letters_of_page: int) -> bool:
    is_named = element.name in _NAMED or element.get("role") in _ROLES
    if is_named or not _CLASSES.isdisjoint(element.get_attribute_list("class")):
        return _is_named_navigation(element, letters_of_page)
    is_beside = element.name == "aside" and not _is_within(element, _CONTENT)
    if is_beside:
        return _is_of_links(element)
    if element.name in _LISTS and _LIST_NAME.search(_names(element)):
        return _is_of_links(element) and _has_short_labels(element)
    # A table of contents repeats the page's headings, unless it links to other pages: then it is their index.
    may_be_toc = element.name in _LISTS and _TOC_NAME.search(_names(element)) is not None
    return may_be_toc and _links_within(element) and _is_of_links(element)


def _is_named_navigation(element: Tag, letters_of_page: int) -> bool:
    letters, linked = _letters(element), _linked(element)
    if _holds_content(element) or _holds_tabs(element) or _holds_answers(element):
        return False
    if element.name in {"header", "footer"} or element.get("role") in {"banner", "contentinfo"}:
        is_small = letters - linked <= min(_MAX_BANNER, _MAX_SHARE * letters_of_page) or 2 * linked > letters
        return is_small and not _is_within(element, _SECTIONS) and not _holds_title(element)
    return letters - linked <= max(_MAX_PROSE, linked)


def _names(element: Tag) -> str:
    """Return the classes and the id of an element."""
    return " ".join(str(name) for name in [*element.get_attribute_list("class"), element.get("id")] if name)


def _holds_content(element: Tag) -> bool:
    return element.find(lambda child: child.name in _CONTENT or child.get("role") == "main") is not None


def _holds_title(element: Tag) -> bool:
    """Return whether an element holds the only heading of the first level."""
    title = element.find("h1")
    return title is not None and title.find_next("h1") is None and title.find_previous("h1") is None


def _holds_tabs(element: Tag) -> bool:
    """Return whether an element holds labels of panels: buttons, or links within the page."""
    parts = [element, *element.find_all(True)]
    if any(part.get("role") in {"tablist", "tab"} for part in parts):
        return True
    return any(_TAB_NAME.search(_names(part)) for part in parts) and _links_within(element)


def _holds_answers(element: Tag) -> bool:
    """Return whether an element holds texts that open at a click, as lists of questions do; menus hold links."""
    panels = [(panel, panel.find("summary")) for panel in element.find_all("details")]
    for label in element.find_all(_is_label):
        panel = _next_beside(label, element)
        is_question = (label.get_text() or str(label.get("value", ""))).strip().endswith("?")
        if panel is not None and (is_question or panel.has_attr("hidden") or panel.get("aria-hidden") == "true"):
            panels.append((panel, None))
    return any(
        not panel.find(["input", "select"])
        and _letters(panel) - _linked(panel) - (_letters(label) if label else 0) >= _MIN_ANSWER
        for panel, label in panels
    )


def _is_label(part: Tag) -> bool:
    """Return whether a click on an element may open another one, or the element is a heading."""
    is_button = part.name == "button" or "button" in (part.get("role"), part.get("type"))
    return is_button or part.name in _HEADINGS


def _next_beside(label: Tag, within: Tag) -> Tag | None:
    """Return the element that follows a label, or follows one of the two elements around it."""
    for _ in range(3):
        if (following := label.find_next_sibling()) is not None:
            return following
        if label.parent is None or label.parent is within:
            return None
        label = label.parent
    return None


def _has_short_labels(element: Tag) -> bool:
    """Return whether links have names as in menus: two words or fewer on average."""
    labels = [link.get_text().split() for link in element.find_all("a", href=True)]
    return sum(map(len, labels)) <= _MAX_LABEL * len(labels)


def _links_within(element: Tag) -> bool:
    """Return whether all links of an element lead to places in the same page."""
    return all(str(link["href"]).startswith("#") for link in element.find_all("a", href=True))


def _is_within(element: Tag, names: set[str]) -> bool:
    return any(parent.name in names or parent.get("role") == "main" for parent in element.parents)


def _is_of_links(element: Tag) -> bool:
    if len(element.find_all("a", href=True)) < _MIN_LINKS or _holds_content(element) or _holds_tabs(element):
        return False
    return _linked(element) >= _LINK_SHARE * _letters(element)


def parse_html(raw: bytes, label: str = "") -> ParsedFile:
    """Read a page as text."""
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
