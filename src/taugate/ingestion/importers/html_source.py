"""The source of a web page: mended so that it loses no words, and read as plain text without regard to layout.

Browsers hide everything in a comment, a script or a quoted attribute that is never closed. Here its opening is dropped
instead, so that the words are kept.
"""

import html
import re
from collections.abc import Callable

from lxml.html import defs

from taugate.ingestion.importers.scripts import SOFT_HYPHEN, set_apart

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


def is_inline(name: str) -> bool:
    """Return whether an element is part of a line, so that words before and after it may be one.

    Args:
        name: Name in lower case.
    """
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
    """Return every word of a page but those of scripts, styles and comments, found by regular expressions.

    Args:
        source: The page as it was decoded, not mended.
        glue: Replacement of a tag within a line.
        entities: Whether to replace entities by their characters.
    """
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
