"""HTML to Markdown, with every text of a page, after its source is mended so that it loses no words.

The source of a web page: mended so that it loses no words, and read as plain text without regard to layout. Browsers
hide everything in a comment, a script or a quoted attribute that is never closed. Here its opening is dropped instead,
so that the words are kept.
"""

import html
import re
from collections.abc import Callable

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString, PageElement
from lxml.html import defs
from markdownify import MarkdownConverter

from taugate.data.parsed import UnreadableFile
from taugate_import.word_share import SOFT_HYPHEN, Script, script_text, set_apart

_NAME = r"[a-zA-Z][^\s/>\"'<=]*"
# A quoted value ends where a tag can continue. If it does not, a quotation mark is missing.
_VALUE = r"=\s*\"[^\"]*\"(?=[\s/>])|=\s*'[^']*'(?=[\s/>])|=(?!\s*[\"'])"
_TAG = re.compile(rf"<(/?)({_NAME})(?:((?:[^<>\"'=]|{_VALUE})*)>|([^<>]*)(>?))")
_ATTRIBUTE = re.compile(r"[\w:-]+\s*=\s*(?:\"[^\"]*\"?|'[^']*'?|[^\s\"']*)")
_CDATA = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)", re.DOTALL)
_OTHER = re.compile(r"<[!?][^<>]*>")  # document type, instructions, and conditions of Word
_BLOCK = re.compile(r"</?(?:p|div|h[1-6]|li|td|tr|section|article)\b[^<>]*>", re.IGNORECASE)
_RAW = ("script", "style", "title", "textarea", "iframe", "noframes", "noembed", "xmp")
_INLINE = {
    *("a", "abbr", "acronym", "b", "basefont", "bdi", "bdo", "big", "blink", "cite", "code", "data", "del", "dfn"),
    *("em", "font", "i", "ins", "kbd", "mark", "nobr", "q", "ruby", "s", "samp", "small", "span", "strike", "strong"),
    *("sub", "sup", "time", "tt", "u", "var", "wbr"),
}
_KNOWN = defs.tags | {
    *("annotation", "bdi", "bgsound", "data", "desc", "dialog", "frame", "frameset", "g", "hgroup", "image", "layer"),
    *("listing", "main", "menuitem", "mi", "mn", "mo", "mtext", "multicol", "nobr", "noembed", "noframes", "noindex"),
    *("picture", "plaintext", "rb", "rtc", "search", "slot", "spacer", "template", "text", "tspan", "xmp"),
}
_RAISED = re.compile(r"<sup\b[^<>]*>[^<]*(?:<(?!/?sup\b)[^<]*)*</sup\s*>", re.IGNORECASE)
_REPLACED = re.compile(r"</(?:del|s|strike)\s*>(?=<ins\b)|</ins\s*>(?=<(?:del|s|strike)\b)", re.IGNORECASE)

_MAX_DEPTH = 250  # markdownify recurses three calls a level; pages written by people stay below 50
# Blocks that markdownify would join with the text around them.
_BLOCKS = {
    *("address", "aside", "body", "center", "details", "dialog", "dir", "fieldset", "figure", "footer", "form"),
    *("frameset", "header", "hgroup", "iframe", "legend", "main", "menu", "nav", "noframes", "optgroup", "option"),
    *("search", "summary", "template", "text"),
}
_PREFORMATTED = {"listing", "plaintext", "textarea", "xmp"}
_TABLE_PARTS = ["caption", "thead", "tbody", "tfoot", "tr", "td", "th"]
_OF_LAYOUT = ["table", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "form"]  # in cells of layout tables
_MARKED = {"b", "code", "del", "em", "i", "kbd", "s", "samp", "strong"}
# Elements that markdownify sets apart, or on a line of their own.
_APART = {
    *("p", "blockquote", "article", "div", "section", "ul", "li", "dl", "dt", "dd", "table", "pre", "hr", "br", "html"),
    *("head", *_TABLE_PARTS, "h1", "h2", "h3", "h4", "h5", "h6"),
}
_SCRIPT_STYLE = re.compile(r"(?:vertical-align|font-variant-position)\s*:\s*(super|sub)\b", re.IGNORECASE)
_SCRIPTS: dict[str, Script] = {"sup": "super", "super": "super", "sub": "sub"}


def is_inline(name: str) -> bool:
    """Return whether an element is part of a line, so that words before and after it may be one."""
    return name in _INLINE or name.startswith(("o:", "st1:"))  # of Word


def _divided(source: str) -> str:
    """Put a space between a deleted word and the one that replaces it: 5 and 6 are not 56."""
    return _REPLACED.sub(lambda tag: f"{tag[0]} ", source)


def mend(source: str) -> str:
    """Return the source of a page with hidden words made visible.

    CDATA sections become text; comments, scripts and quoted attributes that are not closed lose their opening; and text
    that only looks like an element, such as <your name>, remains text.
    """
    source = _CDATA.sub(lambda section: html.escape(section[1], quote=False), _divided(source))
    source = _close(source, "<!--", "-->")
    for name in _RAW:
        source = _close(source, rf"<{name}\b[^<>]*>", rf"</{name}")
    is_markup = _markup_of(source)
    return _TAG.sub(lambda tag: _mended(tag, is_markup), source)


def _close(source: str, opening: str, closing: str) -> str:
    """Drop openings that are not closed, or that are closed only after another opening and parts of the page."""
    openings = list(re.finditer(opening, source, re.IGNORECASE))
    closings = [match.start() for match in re.finditer(closing, source, re.IGNORECASE)]
    dropped, end, at = [], 0, 0
    for number, current in enumerate(openings):
        if current.start() < end:
            continue  # within the previous one
        while at < len(closings) and closings[at] < current.end():
            at += 1
        following = openings[number + 1].start() if number + 1 < len(openings) else len(source)
        if at < len(closings) and (closings[at] < following or not _BLOCK.search(source, current.end(), following)):
            end = closings[at]
        else:
            dropped.append(current.span())
    starts = [0, *(stop for _, stop in dropped)]
    return " ".join(source[begin:start] for begin, (start, _) in zip(starts, [*dropped, (len(source), 0)], strict=True))


def _markup_of(source: str) -> Callable[[re.Match[str]], bool]:
    """Return a function that recognizes a tag: its name is known or prefixed, it has attributes, or it is closed."""
    closed = set(re.findall(r"</([^\s/>]+)", source.lower()))

    def is_markup(tag: re.Match[str]) -> bool:
        name, attributes = tag[2].lower(), tag[3] or ""
        return bool(
            name in _KNOWN or tag[1] or name in closed or re.search(r"[-:]", name) or re.search(r"=|/$", attributes)
        )

    return is_markup


def _mended(tag: re.Match[str], is_markup: Callable[[re.Match[str]], bool]) -> str:
    if not is_markup(tag):
        return html.escape(tag[0], quote=False)
    if tag[3] is not None:
        return tag[0]
    remainder = "" if tag[5] else _ATTRIBUTE.sub(" ", tag[4])  # a tag without an end may contain words
    return f"<{tag[1]}{tag[2]}>{remainder}"


def read_source(source: str, *, glue: str = "", entities: bool = True) -> str:
    """Return every word of a page but those of scripts, styles and comments, found by regular expressions."""
    text = _CDATA.sub(lambda section: html.escape(section[1], quote=False), _divided(source))
    text = _RAISED.sub(set_apart, text)
    text = re.sub(r"<!--[^<]*(?:<(?!!--)[^<]*)*?-->", " ", text)
    for name in ("script", "style"):
        text = re.sub(rf"(?i)<{name}\b[^<>]*>[^<]*(?:<(?!/?{name}\b)[^<]*)*</{name}[^>]*>", " ", text)
    is_markup = _markup_of(text)

    def spaced(tag: re.Match[str]) -> str:
        if not is_markup(tag):
            return f" {tag[0][1:]}"
        remainder = "" if tag[3] is not None or tag[5] else tag[4]
        is_glued = is_inline(tag[2].lower()) and not tag[0].lower().startswith("</sup")
        return f"{glue if is_glued else ' '}{remainder}"

    text = _OTHER.sub(" ", _TAG.sub(spaced, text))
    return (html.unescape(text) if entities else text).replace(SOFT_HYPHEN, "")


class _Converter(MarkdownConverter):
    def convert_pre(self, element: Tag, text: str, parent_tags: set[str]) -> str:
        """Return a listing with a fence that is longer than any in the listing."""
        converted = str(super().convert_pre(element, text, parent_tags))  # type: ignore[misc]  # its types lack the methods
        fences = re.findall(r"^\s*(`{3,})", text, re.MULTILINE)
        if not fences:
            return converted
        longer = "`" * (max(map(len, fences)) + 1)
        return f"\n\n{longer}\n{text.strip(chr(10))}\n{longer}\n\n"


def parse_page(source: str) -> BeautifulSoup:
    """Parse a page, or a part of one."""
    page = BeautifulSoup(source, "lxml")
    depth, level = 0, [*page.children]
    while level := [child for element in level if isinstance(element, Tag) for child in element.children]:
        depth += 1
    if depth > _MAX_DEPTH:
        raise UnreadableFile("is nested too deeply")
    return page


def to_markdown(html: str | Tag) -> str:
    """Return HTML as Markdown, with the descriptions of images and without the targets of links."""
    page = parse_page(html) if isinstance(html, str) else html
    _show_hidden_texts(page)
    _unfold_layout_tables(page)
    for element in reversed([element for element in page.find_all(True) if _script_of(element)]):  # inner ones first
        if element.find([*_BLOCKS, *_APART]):
            element.insert(0, " ")
            continue
        before, behind = _text_beside(element, "previous_sibling"), _text_beside(element, "next_sibling")
        text = script_text(element.get_text(), _script_of(element), before, behind)
        element.name = "span"
        element.clear()
        element.append(text)
    for element in page.find_all(True):
        if element.name in _BLOCKS:
            element.name = "div"
        elif element.name in _PREFORMATTED:
            element.name = "pre"
        elif element.name == "ol":
            element.name = "ul"  # the numbers of its items are not in the page
        elif element.name in _MARKED:
            if _is_part_of_word(element):
                element.name = "span"  # its marks would divide the word
        elif element.name not in _APART and not is_inline(element.name):
            element.insert(0, " ")
            element.append(" ")
    converter = _Converter(
        heading_style="ATX",
        strip=["a", "img", "video"],
        escape_asterisks=False,
        escape_underscores=False,
        wrap=True,
        wrap_width=None,
    )
    return str(converter.convert_soup(page)).replace(SOFT_HYPHEN, "")


def _script_of(element: Tag) -> Script:
    """Return the kind of a superscript or subscript, "" for other elements."""
    style = _SCRIPT_STYLE.search(str(element.get("style", "")))
    return _SCRIPTS.get(style[1].lower() if style else element.name, "") if is_inline(element.name) else ""


def _is_part_of_word(element: Tag) -> bool:
    """Return whether a word begins before an element and ends in it, or begins in it and ends after it."""
    text = element.get_text()
    before, behind = _text_beside(element, "previous_sibling"), _text_beside(element, "next_sibling")
    return (text[:1].isalnum() and before[-1:].isalnum()) or (text[-1:].isalnum() and behind[:1].isalnum())


def _text_beside(element: Tag, direction: str) -> str:
    node: PageElement | None = element
    while isinstance(node, Tag) and getattr(node, direction) is None and is_inline(node.name):
        node = node.parent
    beside = getattr(node, direction, None)
    if isinstance(beside, Tag):
        return beside.get_text() if is_inline(beside.name) else ""
    return str(beside or "")


def _show_hidden_texts(page: Tag) -> None:
    """Insert texts that a reader sees or hears: descriptions of images, frames, labels of buttons.

    Readings of Chinese and Japanese characters are placed after their word. Signs that link to their own heading are
    removed.
    """
    for element in page.find_all(["img", "input", "iframe", "noframes", "noembed", "ruby", "a"]):
        if element.name == "img" and element.get("aria-hidden") != "true":
            element.append(f" {element.get('alt', '')} ")
        elif element.name == "input" and element.get("type", "text") in {"button", "text"}:
            element.append(f" {element.get('value', '')} ")
        elif element.name in {"iframe", "noframes", "noembed"}:
            _unpack(element)
        elif element.name == "ruby":
            _put_readings_behind(element)
        elif element.name == "a" and _is_sign_of_heading(element):
            element.decompose()


def _is_sign_of_heading(link: Tag) -> bool:
    within = str(link.get("href", "")).startswith("#")
    return within and not re.search(r"\w", link.get_text()) and not link.find("img")


def _unpack(frame: Tag) -> None:
    """Parse the content of a frame as source."""
    inner = BeautifulSoup(mend(str(frame.get("srcdoc") or frame.get_text())), "lxml")
    for element in inner.find_all(["script", "style", "title"]):
        element.decompose()
    frame.clear()
    frame.extend(list(inner.contents))


def _put_readings_behind(ruby: Tag) -> None:
    readings = "".join(reading.get_text() for reading in ruby.find_all("rt"))
    for element in ruby.find_all(["rt", "rp", "rtc"]):
        element.decompose()
    ruby.append(NavigableString(f"({readings})" if readings else ""))


def _unfold_layout_tables(page: Tag) -> None:
    """Replace tables that only arrange the parts of a page by these parts."""
    for table in page.find_all("table"):
        if table.get("role") == "presentation" or table.find(_OF_LAYOUT):
            for part in table.find_all(_TABLE_PARTS):
                if part.find_parent("table") is table:
                    part.name = "div"
            table.name = "div"
