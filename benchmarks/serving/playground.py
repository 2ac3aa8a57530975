"""Time the playground in Chromium: its first paint, and three tasks of a user, on a service with the sample's release.

Run `make playground` while `taugate quickstart` serves. The user of the tasks types five letters a second, and takes a
second before each click or key to find where it goes.
"""

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from typing import Literal
from urllib.request import urlopen

from playwright.sync_api import Browser, Page, sync_playwright

_OPENED = 20  # times that the page is opened; the first one, in a cold browser, is not counted
_LETTER_MILLISECONDS, _STEP_SECONDS = 200, 1.0
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


class User:
    """Somebody at the page; steps: clicks, keys and texts that were typed."""

    def __init__(self, page: Page) -> None:
        self._page, self.steps = page, 0

    def click(self, name: str) -> None:
        """Click the first button or link with a name."""
        self._step()
        self._page.get_by_role("button", name=name, exact=True).first.click()

    def point_at(self, role: Literal["slider"]) -> None:
        """Give the focus to the only element with a role."""
        self._step()
        self._page.get_by_role(role).focus()

    def type_into(self, label: str, text: str) -> None:
        """Click a field, and type a text into it."""
        self._step()
        self._page.get_by_label(label, exact=True).press_sequentially(text, delay=_LETTER_MILLISECONDS)

    def press(self, key: str, *, until: str) -> None:
        """Press a key, and wait for what it brings.

        Args:
            until: A selector of that.
        """
        self._step()
        self._page.keyboard.press(key)
        self._page.locator(until).first.wait_for()

    def ask(self, question: str) -> None:
        """Type a question, and send it."""
        self.type_into("Question", question)
        self.press("Enter", until=".result")

    def clear(self) -> None:
        """Make room for another question."""
        self._page.get_by_label("Question", exact=True).clear()

    def _step(self) -> None:
        self.steps += 1
        self._page.wait_for_timeout(1000 * _STEP_SECONDS)


def find_why_a_document_is_missing(user: User) -> None:
    """A document is expected for a question, and is not among the results."""
    user.ask("Is an inspector insured?")
    user.type_into("Id of a document that you miss", "dolda-fel-013")
    user.press("Enter", until="#explanation strong")


def choose_a_stricter_threshold(user: User) -> None:
    """A threshold is wanted that keeps less, for a price that is told; its search is copied."""
    user.ask("Who pays for hidden defects?")
    user.point_at("slider")
    for _ in range(3):
        user.press("PageUp", until="#tau-reset:enabled")
    user.click("Python")
    user.click("Copy")


def judge_ten_results(user: User) -> None:
    """The five results of two questions are judged, each with a key."""
    for question in ("Is an inspector insured?", "Must roofers hold a qualification?"):
        user.ask(question)
        user.click("Judge the results")
        for judged in range(1, 6):
            user.press("ynnnn"[judged - 1], until=f":nth-match(.result [aria-pressed=true], {judged})")
        user.clear()


_TASKS: tuple[Callable[[User], None], ...] = (
    find_why_a_document_is_missing,
    choose_a_stricter_threshold,
    judge_ten_results,
)


def main() -> None:
    """Print the first paints, and steps and seconds of each task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000/playground", help="address of the page")
    url = parser.parse_args().url
    try:
        urlopen(url, timeout=10).close()  # noqa: S310 (the user's own address)
    except (OSError, ValueError) as error:
        parser.error(f"{url} does not answer ({error}); start `taugate quickstart` on another terminal")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        paints = sorted(_first_paints(browser, url))
        sys.stdout.write(
            f"first paint: median {statistics.median(paints):.0f} ms, slowest of {len(paints)} {paints[-1]:.0f} ms\n"
        )
        for task in _TASKS:
            user = User(_open(browser, url))
            began = time.perf_counter()
            task(user)
            seconds = time.perf_counter() - began
            sys.stdout.write(f"{task.__name__.replace('_', ' ')}: {user.steps} steps, {seconds:.0f} s\n")
        browser.close()


def _first_paints(browser: Browser, url: str) -> list[float]:
    """Return PerformancePaintTiming of the page in milliseconds, each time in a profile without a cache."""
    paints = []
    for _ in range(_OPENED):
        page = _open(browser, url)
        paints.append(float(page.evaluate(_PAINTED)))
        page.context.close()  # or the pages before would take turns with this one
    return paints[1:]


def _open(browser: Browser, url: str) -> Page:
    page = browser.new_context().new_page()
    page.goto(url)
    page.locator("#figure svg path").first.wait_for()
    return page


if __name__ == "__main__":
    main()
