"""What readers of a web page do not miss: its menus, banners and footers.

An element is left out only if the page itself names it so (`nav`, `header`, a role), or if two signs agree: its words
are links, and its class says so or it stands above the title. What is left out is returned, so that it can be told from
what is lost.
"""

import re

from bs4 import Tag

_NAMED = "nav, [role=navigation], [role=search], [role=banner], [role=contentinfo], header, footer"
_CONTENT = "main, [role=main], article"
# Headers and footers of these are their own, not the page's.
_SECTIONS = "main, [role=main], article, aside, section, blockquote, details, dialog, fieldset, figure, td"
_LISTS = "ul, ol, dl, div, table, aside, section, p"
_ABOVE_TITLE = ["ul", "ol", "dl", "table"]
_LIST_NAME = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|navheader|navfooter|menus?|sidebar|breadcrumbs?|toc|pager|pagination)"
    r"(?:[\s_-]|$)",
    re.IGNORECASE,
)
_EDIT_LINKS = ".mw-editsection, .mw-jump-link"  # of MediaWiki
_LINK_SHARE, _MIN_LINKS = 0.8, 3  # of a list of links: of its letters, and links
_MAX_SHARE = 1 / 3  # of a page's letters that may be a header or footer
_MAX_PROSE = 200  # letters beside the links of a menu
_MIN_LEFT = 0.05  # of a page's letters: with less beside its menus, the menus are the page


def remove_navigation(page: Tag) -> str:
    """Remove the menus, banners and footers of a page, and return their words.

    page: without scripts and styles. If next to nothing were left, nothing is removed. The only first-level heading of
    a page stays.
    """
    letters = _letters(page)
    elements = [each for each in page.select(_NAMED) if _is_named_navigation(each, letters)]
    elements += [each for each in page.select(_LISTS) if _has_name_of_list(each) and _is_of_links(each)]
    if title := page.find("h1"):
        lists = (each for each in title.find_all_previous(_ABOVE_TITLE) if each not in title.parents)
        elements += [each for each in lists if _is_of_links(each) and not _is_within(each, _CONTENT)]
    elements += page.select(_EDIT_LINKS)
    chosen = {id(each) for each in elements}
    outermost = [each for each in elements if not any(id(parent) in chosen for parent in each.parents)]
    if letters - sum(map(_letters, outermost)) < _MIN_LEFT * letters:
        return ""
    removed = []
    for element in {id(each): each for each in outermost}.values():
        headings = element.find_all("h1")
        if headings and len(headings) == len(page.find_all("h1")):
            element.insert_before(headings[0].extract())
        removed.append(element.extract().get_text(" "))
    return "\n".join(removed)


def _letters(element: Tag) -> int:
    return sum(map(str.isalnum, element.get_text()))


def _linked(element: Tag) -> int:
    return sum(_letters(link) for link in element.select("a[href]"))


def _is_named_navigation(element: Tag, letters_of_page: int) -> bool:
    own, linked = _letters(element), _linked(element)
    if element.select_one(_CONTENT):
        return False
    if element.name in {"header", "footer"} or element.get("role") in {"banner", "contentinfo"}:
        is_small = own <= _MAX_SHARE * letters_of_page or 2 * linked > own
        return is_small and not _is_within(element, _SECTIONS)
    return own - linked <= max(_MAX_PROSE, linked)


def _is_within(element: Tag, selector: str) -> bool:
    return any(parent.parent is not None and parent.css.match(selector) for parent in element.parents)


def _has_name_of_list(element: Tag) -> bool:
    names = [*element.get_attribute_list("class"), element.get("id", "")]
    return bool(_LIST_NAME.search(" ".join(str(name) for name in names if name)))


def _is_of_links(element: Tag) -> bool:
    if len(element.select("a[href]")) < _MIN_LINKS or element.select_one(_CONTENT):
        return False
    return _linked(element) >= _LINK_SHARE * _letters(element)
