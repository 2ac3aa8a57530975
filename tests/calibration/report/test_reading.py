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


@pytest.mark.parametrize(("width", "height"), [(1280, 5000), (400, 8000)])
def test_folded_page_is_short_and_unfolds_by_link(
    browser: Browser, reports: dict[str, Path], width: int, height: int
) -> None:
    with opened(browser, reports["compared"], width=width) as page:
        page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = false })")
        assert page.evaluate("document.documentElement.scrollHeight") <= height
        assert not page.is_visible("#curves figure")
        page.click("nav a[href='#curves']")
        assert page.is_visible("#curves figure")


def test_questions_are_filtered_by_words(browser: Browser, reports: dict[str, Path]) -> None:
    visible = "nodes => nodes.filter(node => node.offsetParent !== null).map(node => node.textContent)"
    with opened(browser, reports["first"]) as page:
        before = page.locator("#questions tbody tr").evaluate_all(visible)
        page.fill("#questions input", "held KEPT")
        after = page.locator("#questions tbody tr").evaluate_all(visible)
    assert 0 < len(after) < len(before)
    assert after == [text for text in before if "held" in text.lower() and "kept" in text.lower()]


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


def test_wide_table_says_that_it_scrolls(browser: Browser, reports: dict[str, Path]) -> None:
    hint = "(table) => parseFloat(getComputedStyle(table, '::before').height)"
    for report in reports.values():
        with opened(browser, report, width=400) as page:
            tables = page.locator(".wide").all()
            scrolls = [table.evaluate("node => node.scrollWidth > node.clientWidth + 1") for table in tables]
            assert {*scrolls} == {True, False}
            assert [table.evaluate(hint) > 0 for table in tables] == scrolls


@pytest.mark.parametrize("width", [400, 800, 1280])
def test_contents_stay_in_view_and_options_are_whole(browser: Browser, reports: dict[str, Path], width: int) -> None:
    lines = "nodes => nodes.map(node => node.getClientRects().length)"
    for report in reports.values():
        with opened(browser, report, width=width) as page:
            assert {*page.locator(".option").evaluate_all(lines)} == {1}
            page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
            box = page.locator("nav").bounding_box()
            assert box is not None
            assert 0 <= box["y"] < 50


def test_outcome_is_more_prominent_than_threshold(browser: Browser, reports: dict[str, Path]) -> None:
    sizes = "(name) => [...document.querySelectorAll(name)].map(each => parseFloat(getComputedStyle(each).fontSize))"
    widths = (
        "(name) => [...document.querySelectorAll(name)].map(each => parseFloat(getComputedStyle(each).strokeWidth))"
    )
    for report in reports.values():
        with opened(browser, report) as page:
            outcome, threshold = page.evaluate(sizes, "h1")[0], page.evaluate(sizes, ".threshold")[0]
            assert outcome > threshold >= max(page.evaluate(sizes, "h2, p:not(.threshold), dd"))
            assert min(page.evaluate(widths, ".mark.tau")) > max(page.evaluate(widths, "path:not(.tau)"))
            boxes = [page.locator(name).first.bounding_box() for name in ("h1", ".warning", ".threshold")]
            tops = [box["y"] for box in boxes if box is not None]
            assert len(tops) == 3
            assert tops == sorted(tops)
