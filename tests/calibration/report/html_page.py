"""A page as a browser reads it, and what holds for every report."""

import base64
import hashlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from xml.etree import ElementTree

_SECTIONS = ["headline", "rules", "lost", "abstaining", "densities-section", "numbers", "gate", "questions"]
_SECTIONS += ["curves", "kept", "relevance", "labels", "query-set", "comparison", "papers"]
_PATH = re.compile(r"[\w.-]*(?:/[\w.-]+)+")
_VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Elements with their attributes, text by section, and every tag closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[tuple[str, str]] = []
        self.text: dict[str, str] = {}
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append((tag, dict(attrs).get("id") or ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, name in self.open:
            self.text[name] = self.text.get(name, "") + data


def drawings(html: str) -> Iterator[ElementTree.Element]:
    for part in html.split("<svg")[1:]:
        yield ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")  # noqa: S314 (our own)


def wrong_numbers(html: str) -> list[str]:
    """Return what is shown of NaN, infinity and negative zero; the command names folders, such as pytest-0."""
    return re.findall(r"\bnan\b|\binf\b|[-−]0(?:\.0+)?(?![\w.])", _PATH.sub("", html))


def check(html: str) -> Page:
    """Check what holds for every report, and return its page."""
    page = Page(html)
    tags = {tag for tag, _ in page.elements}
    sections = [attributes["id"] for tag, attributes in page.elements if tag in ("header", "section")]
    assert [name for name in sections if name != "adapted"] == _SECTIONS  # only adapted encoders have that one
    assert not tags & {"link", "img", "iframe", "object", "base", "form"}
    (script,) = re.findall("<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html, "a script of the page itself, and no other"
    assert not re.search(r"url\(|@import", html)
    assert not wrong_numbers(html)
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    for _, attributes in page.elements:
        assert not any(name.startswith("on") or name in ("src", "style") for name in attributes)
        assert "http" not in " ".join(value or "" for name, value in attributes.items() if name != "http-equiv")
        assert (attributes.get("href") or "#")[0] == "#"
        assert (attributes.get("href") or "#numbers")[1:] in names
    policy = next(each["content"] for _, each in page.elements if each.get("http-equiv") == "Content-Security-Policy")
    assert policy and policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    for drawing in drawings(html):
        assert drawing.get("role") == "img" or drawing.get("aria-hidden") == "true"
        if drawing.get("role") == "img":
            assert [child.tag for child in drawing][:2] == ["title", "desc"]
            assert all((child.text or "").strip() for child in list(drawing)[:2])
    return page
