"""Navigation of a web page, which readers do not miss: menus, banners and footers.

An element is left out only if the page itself declares it so (`nav`, `header`, a role), or if two signs agree: its
words are links, and its class says so or it is above the title. The removed text is returned, so that it is not counted
as lost. Lists of tabs are part of the content, in any element.
"""

import re

from bs4 import Tag

from taugate.ingestion.importers.html_source import read_source

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


def remove_navigation(page: Tag, source: str) -> str:
    """Remove the menus, banners and footers of a page, and return their words.

    If almost no text would be left, nothing is removed. A banner with the page's title is kept, without its menus.

    Args:
        page: Page without scripts and styles.
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
