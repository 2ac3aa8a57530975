"""Pages in a real browser: Chromium opens them as a reader does, and axe looks for what keeps people from reading."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
A4_WIDTH = 688  # pixels: 210 mm less two margins of 14 mm, at 96 dpi


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser; skips the test where no Chromium is installed."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.skip("needs Chromium: install it as `chromium` or `google-chrome`")
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
    """Open a page, every part of it unfolded, in a profile of its own.

    Args:
        page_at: Its file, or its URL.
        width: Of the window, in pixels.
        scheme: What the reader's system prefers.
        printed: As on paper.
    """
    # Without its own policy, as that lets no script in: axe is one.
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    if printed:
        page.emulate_media(media="print")
    page.goto(page_at if isinstance(page_at, str) else page_at.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    yield page
    page.close()


def violations(page: Page) -> list[str]:
    """Return what axe finds on a page, each with its rule and the first elements that break it.

    Args:
        page: Opened.
    """
    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes'][:3]]}" for each in found]


def cut_off(page: Page) -> list[str]:
    """Return the parts of a page that are wider than the room they have.

    Args:
        page: Opened.
    """
    script = """() => [document.documentElement, ...document.querySelectorAll("main *, header *")]
      .filter(each => each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0)
      .map(each => `${each.tagName} ${each.className} ${each.scrollWidth} > ${each.clientWidth}`)"""
    found: list[str] = page.evaluate(script)
    return found
