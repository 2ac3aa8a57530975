"""Pages in a real browser: Chromium opens them, and axe checks their accessibility."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.servers import CHROMIUM, require

A4_WIDTH = 688  # pixels: 210 mm less two margins of 14 mm, at 96 dpi


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser, or skip the test if Chromium is not installed."""
    program = require(*CHROMIUM)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser,
    page_at: Path | str,
    *,
    width: int = 1280,
    scheme: Literal["light", "dark"] = "light",
    printed: bool = False,
) -> Iterator[Page]:
    """Open a page in a new profile, with every folded part unfolded.

    Args:
        page_at: File or URL of the page.
        width: Width of the window in pixels.
        scheme: Colour scheme that the reader's system prefers.
        printed: Whether the page is laid out as on paper.
    """
    # Without the page's content security policy, which would keep axe out.
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    if printed:
        page.emulate_media(media="print")
    page.goto(page_at if isinstance(page_at, str) else page_at.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true })")
    yield page
    page.close()


def violations(page: Page) -> list[str]:
    """Return the violations that axe finds on a page: rule, message and the first elements that break it."""
    _drawn(page)
    results = Axe().run(page).response["violations"]
    return [f"{rule['id']}: {rule['help']}: {[node['target'] for node in rule['nodes'][:3]]}" for rule in results]


def cut_off(page: Page) -> list[str]:
    """Return the elements of a page whose content is wider than they are, and which cannot be scrolled to see it."""
    script = """() => [document.documentElement, ...document.querySelectorAll("main *, header *")]
      .filter(node => node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 1)
      .filter(node => !["auto", "scroll"].includes(getComputedStyle(node).overflowX)
        && getComputedStyle(node).textOverflow !== "ellipsis")
      .map(node => `${node.tagName} ${node.className} ${node.scrollWidth} > ${node.clientWidth}`)"""
    _drawn(page)
    elements: list[str] = page.evaluate(script)
    return elements


def _drawn(page: Page) -> None:
    """Wait until the page has drawn itself for the present size of its window, which it does one frame later."""
    page.evaluate("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
