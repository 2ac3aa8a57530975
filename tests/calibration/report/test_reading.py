"""Everybody can read the report: on a phone, in the dark, on paper, and with a screen reader."""

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser

from tests.browser import A4_WIDTH, cut_off, opened, violations
from tests.calibration.report.studies import Studied


@pytest.fixture(scope="module")
def reports(papers: Studied, probability: Studied, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A first release, and one that is compared with it; both have warnings."""
    folder = tmp_path_factory.mktemp("reports")
    found = {"first": folder / "first.html", "compared": folder / "compared.html"}
    found["first"].write_text(papers.page(), encoding="utf-8")
    found["compared"].write_text(probability.page(papers.manifest()), encoding="utf-8")
    return found


@pytest.mark.parametrize("name", ["first", "compared"])
@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1280, "light"), (1280, "dark")])
@pytest.mark.slow
def test_page_has_no_accessibility_violations(
    browser: Browser, reports: dict[str, Path], name: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    with opened(browser, reports[name], width=width, scheme=scheme) as page:
        assert violations(page) == []


def test_phone_cuts_nothing_off(browser: Browser, reports: dict[str, Path]) -> None:
    """Only a wide table scrolls, in a region of its own that the keyboard reaches."""
    for report in reports.values():
        with opened(browser, report, width=400) as page:
            assert [each for each in cut_off(page) if not each.startswith("DIV wide")] == []
            assert page.evaluate("getComputedStyle(document.querySelector('p.soft')).fontSize") == "16px"


def test_print_cuts_nothing_off(browser: Browser, reports: dict[str, Path]) -> None:
    for report in reports.values():
        with opened(browser, report, width=A4_WIDTH, printed=True) as page:
            assert cut_off(page) == []
            assert not page.is_visible("nav")


def test_threshold_is_most_prominent(browser: Browser, reports: dict[str, Path]) -> None:
    sizes = "(name) => [...document.querySelectorAll(name)].map(each => parseFloat(getComputedStyle(each).fontSize))"
    widths = (
        "(name) => [...document.querySelectorAll(name)].map(each => parseFloat(getComputedStyle(each).strokeWidth))"
    )
    for report in reports.values():
        with opened(browser, report) as page:
            assert page.evaluate(sizes, ".threshold")[0] > max(page.evaluate(sizes, "h1, h2, p:not(.threshold), dd"))
            assert min(page.evaluate(widths, ".mark.tau")) > max(page.evaluate(widths, "path:not(.tau)"))
            warning, threshold = (page.locator(each).first.bounding_box() for each in (".warning", ".threshold"))
            assert warning is not None and threshold is not None
            assert warning["y"] < threshold["y"]
