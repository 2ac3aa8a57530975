"""HTML to Markdown, with every text that a page holds."""

import re

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString
from markdownify import MarkdownConverter

from taugate.ingestion.importers.html_source import SOFT_HYPHEN, is_inline, mend

# Blocks that markdownify would put in one line with what is around them.
_BLOCKS = (
    "address, aside, body, center, details, dialog, dir, fieldset, figure, footer, form, frameset, header, hgroup, "
    "iframe, legend, main, menu, nav, noframes, optgroup, option, search, summary, svg text, template"
)
_PREFORMATTED = "listing, plaintext, textarea, xmp"
_OF_LAYOUT = "table, h1, h2, h3, h4, h5, h6, pre, form"  # a table with these in its cells is no table of data
_TABLE_PARTS = ["caption", "thead", "tbody", "tfoot", "tr", "td", "th"]
_MARKDOWNIFY = {
    "p",
    "blockquote",
    "article",
    "div",
    "section",
    "ol",
    "ul",
    "li",
    "dl",
    "dt",
    "dd",
    "table",
    "pre",
    "hr",
}


class _Converter(MarkdownConverter):
    def convert_pre(self, element: Tag, text: str, parent_tags: set[str]) -> str:
        """Return a listing with a fence that is longer than any in the listing."""
        converted = str(super().convert_pre(element, text, parent_tags))  # type: ignore[misc]  # its types lack the methods
        fences = re.findall(r"^\s*(`{3,})", text, re.MULTILINE)
        if not fences:
            return converted
        longer = "`" * (max(map(len, fences)) + 1)
        return f"\n\n{longer}\n{text.strip(chr(10))}\n{longer}\n\n"


def to_markdown(html: str | Tag) -> str:
    """Return HTML as Markdown, with the descriptions of images and without the targets of links.

    html: source, or a parsed page, which is changed.
    """
    page = BeautifulSoup(html, "lxml") if isinstance(html, str) else html
    _show_hidden_texts(page)
    _unfold_layout_tables(page)
    for element in page.select(_BLOCKS):
        element.name = "div"
    for element in page.select(_PREFORMATTED):
        element.name = "pre"
    for element in page.find_all(True):
        if not is_inline(element.name) and element.name not in _MARKDOWNIFY | {"br", *_TABLE_PARTS}:
            element.insert_before(" ")
            element.insert_after(" ")
    converter = _Converter(
        heading_style="ATX",
        strip=["a", "img", "video"],
        escape_asterisks=False,
        escape_underscores=False,
        wrap=True,
        wrap_width=None,
    )
    return str(converter.convert_soup(page)).replace(SOFT_HYPHEN, "")


def _show_hidden_texts(page: Tag) -> None:
    """Put texts of a page where a reader sees or hears them: descriptions of images, frames, labels of buttons.

    Readings of Chinese and Japanese characters follow the word that they stand above. Signs that link to their own
    heading are removed.
    """
    for image in page.select("img[alt]"):
        if image.get("aria-hidden") != "true":
            image.insert_after(f" {image['alt']} ")
    for button in page.select("input[type=button][value]"):
        button.insert_after(f" {button['value']} ")
    for frame in page.select("iframe, noframes, noembed"):
        inner = BeautifulSoup(mend(str(frame.get("srcdoc") or frame.get_text())), "lxml")
        for element in inner.select("script, style, title"):
            element.decompose()
        frame.clear()
        frame.extend(list(inner.contents))
    for ruby in page.find_all("ruby"):
        readings = "".join(each.get_text() for each in ruby.select("rt"))
        for element in ruby.select("rt, rp, rtc"):
            element.decompose()
        ruby.append(NavigableString(f"({readings})" if readings else ""))
    for link in page.select("a[href^='#']"):
        if not re.search(r"\w", link.get_text()) and not link.find("img"):
            link.decompose()


def _unfold_layout_tables(page: Tag) -> None:
    """Turn tables that only arrange the parts of a page into these parts."""
    for table in page.find_all("table"):
        if table.get("role") == "presentation" or table.select_one(_OF_LAYOUT):
            for part in table.find_all(_TABLE_PARTS):
                if part.find_parent("table") is table:
                    part.name = "div"
            table.name = "div"
