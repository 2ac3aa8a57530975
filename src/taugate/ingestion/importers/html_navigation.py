"""What readers of a web page do not miss: its menus, banners and footers.

An element is left out only if the page itself names it so (`nav`, `header`, a role), or if two signs agree: its words
are links, and its class says so or it stands above the title. What is left out is returned, so that it can be told from
what is lost. Lists of tabs are part of the content, whatever element holds them.
"""

import re

from bs4 import Tag

from taugate.ingestion.importers.html_source import read_source

_NAMED = {"nav", "header", "footer"}
_ROLES = {"navigation", "search", "banner", "contentinfo"}
_CONTENT = {"main", "article"}
# Headers and footers of these are their own, not the page's.
_SECTIONS = _CONTENT | {"aside", "section", "blockquote", "details", "dialog", "fieldset", "figure", "td"}
_LISTS = {"ul", "ol", "dl", "div", "table", "aside", "section", "p"}
_ABOVE_TITLE = ["ul", "ol", "dl", "table"]
_LIST_NAME = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|menus?|sidebar|breadcrumbs?|pager|pagination)"
    r"(?:[\s_-]|$)",
    re.IGNORECASE,
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


def remove_navigation(page: Tag, source: str) -> str:
    """Remove the menus, banners and footers of a page, and return their words.

    Args:
        page: Without scripts and styles.
        source: That it was parsed from. An element that it does not close is none, as what follows is in it. If next to
            nothing were left, nothing is removed. A banner with the page's title stays, without its menus.
    """
    letters = _letters(page)
    closed = {name for name in _NAMED if source.count(f"<{name}") <= source.count(f"</{name}")}
    elements = [
        each
        for each in page.find_all(True)
        if (each.name not in _NAMED or each.name in closed) and _is_navigation(each, letters)
    ]
    if title := page.find("h1"):
        lists = (each for each in title.find_all_previous(_ABOVE_TITLE) if each not in title.parents)
        elements += [each for each in lists if _is_of_links(each) and not _is_within(each, _CONTENT)]
    chosen = {id(each) for each in elements}
    outermost = [each for each in elements if not any(id(parent) in chosen for parent in each.parents)]
    if letters - sum(map(_letters, outermost)) < max(_MIN_LEFT * letters, _MIN_LETTERS_LEFT):
        return ""
    unique = {id(each): each for each in outermost}.values()
    return "\n".join(read_source(str(element.extract())) for element in unique)


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
    # A table of contents repeats the page's headings, unless it leads to other pages: then it is their index.
    may_be_toc = element.name in _LISTS and _TOC_NAME.search(_names(element)) is not None
    return may_be_toc and _links_within(element) and _is_of_links(element)


def _is_named_navigation(element: Tag, letters_of_page: int) -> bool:
    own, linked = _letters(element), _linked(element)
    if _holds_content(element) or _holds_tabs(element) or _holds_answers(element):
        return False
    if element.name in {"header", "footer"} or element.get("role") in {"banner", "contentinfo"}:
        is_small = own - linked <= min(_MAX_BANNER, _MAX_SHARE * letters_of_page) or 2 * linked > own
        return is_small and not _is_within(element, _SECTIONS) and not _holds_title(element)
    return own - linked <= max(_MAX_PROSE, linked)


def _names(element: Tag) -> str:
    """Return the classes and the id of an element."""
    return " ".join(str(name) for name in [*element.get_attribute_list("class"), element.get("id")] if name)


def _holds_content(element: Tag) -> bool:
    return element.find(lambda each: each.name in _CONTENT or each.get("role") == "main") is not None


def _holds_title(element: Tag) -> bool:
    """Whether an element holds the only heading of the first level."""
    title = element.find("h1")
    return title is not None and title.find_next("h1") is None and title.find_previous("h1") is None


def _holds_tabs(element: Tag) -> bool:
    """Whether an element holds labels of panels: buttons, or links within the page."""
    parts = [element, *element.find_all(True)]
    if any(part.get("role") in {"tablist", "tab"} for part in parts):
        return True
    return any(_TAB_NAME.search(_names(part)) for part in parts) and _links_within(element)


def _holds_answers(element: Tag) -> bool:
    """Whether an element holds texts that open at a click, as lists of frequent questions do; menus hold links."""
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
    """Whether a click on an element may open another one, or an element is a heading."""
    is_button = part.name == "button" or "button" in (part.get("role"), part.get("type"))
    return is_button or part.name in _HEADINGS


def _next_beside(label: Tag, within: Tag) -> Tag | None:
    """Return the element that follows a label, or one of the two around it."""
    for _ in range(3):
        if (following := label.find_next_sibling()) is not None:
            return following
        if label.parent is None or label.parent is within:
            return None
        label = label.parent
    return None


def _has_short_labels(element: Tag) -> bool:
    """Whether links are named as in menus: by two words or fewer on average."""
    labels = [link.get_text().split() for link in element.find_all("a", href=True)]
    return sum(map(len, labels)) <= _MAX_LABEL * len(labels)


def _links_within(element: Tag) -> bool:
    """Whether all links of an element lead to places in the same page."""
    return all(str(link["href"]).startswith("#") for link in element.find_all("a", href=True))


def _is_within(element: Tag, names: set[str]) -> bool:
    return any(parent.name in names or parent.get("role") == "main" for parent in element.parents)


def _is_of_links(element: Tag) -> bool:
    if len(element.find_all("a", href=True)) < _MIN_LINKS or _holds_content(element) or _holds_tabs(element):
        return False
    return _linked(element) >= _LINK_SHARE * _letters(element)
