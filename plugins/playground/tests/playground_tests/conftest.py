"""The playground in a browser, under the content policy of the service, with all its requests recorded."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Locator, Page

from tests.service_process import ServiceProcess

# The fake encoder's release does not refuse it, and keeps some of its five results, with a lexical part or without.
QUESTION = "How long does an energy declaration remain valid?"
_MAX_TABS = 250  # from one end of the page to the other
_REPORT = "addEventListener('securitypolicyviolation', event => console.error('policy: ' + event.violatedDirective))"


class Playground:
    """A page that is open.

    asked: every request that it made, as method and URL; trouble: errors of its script, and what its policy blocked.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.asked: list[tuple[str, str]] = []
        self.trouble: list[str] = []
        page.on("request", lambda request: self.asked.append((request.method, request.url)))
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("console", lambda said: self._hear(said.text) if said.type == "error" else None)
        page.add_init_script(_REPORT)
        page.goto(f"{url}/playground")

    def _hear(self, said: str) -> None:
        if "Failed to load resource" not in said:  # a status or a lost connection, which the page itself tells about
            self.trouble.append(said)

    def __getitem__(self, id: str) -> Locator:
        return self.page.locator(f"#{id}")

    @property
    def results(self) -> Locator:
        """All results that are shown, kept ones first."""
        return self.page.locator(".result")

    @property
    def verdict(self) -> str:
        """What the page says about the last question."""
        return self["verdict"].text_content() or ""

    def loaded(self) -> "Playground":
        """Wait until release and distributions are shown."""
        self.page.wait_for_selector("#figure svg path.curve")
        self.page.wait_for_selector("#release-facts table")
        self.page.wait_for_selector("#questions-body tr")
        return self

    def ask(self, question: str = QUESTION) -> None:
        """Ask with the keyboard, and wait for the reply."""
        self["question"].fill(question)
        self["question"].press("Enter")
        self.answered()

    def answered(self) -> None:
        """Wait until no question is on its way."""
        self["ask-form"].get_by_role("button", name="Ask", exact=True).wait_for()

    def sent(self, path: str, act: Any) -> dict[str, Any]:
        """Return the JSON of the first request to a path that an action causes."""
        with self.page.expect_request(f"**{path}") as caught:
            act()
        return json.loads(caught.value.post_data or "")


class Person:
    """Uses a page with the mouse, or with nothing but the keyboard."""

    def __init__(self, playground: Playground, hand: Literal["mouse", "keyboard"]) -> None:
        self.playground, self.hand, self.keys = playground, hand, playground.page.keyboard

    def focus(self, target: Locator) -> None:
        """Put the focus on an element: a click, or as many tabs as it takes."""
        if self.hand == "mouse":
            target.click()
            return
        for _ in range(_MAX_TABS):
            if target.evaluate("element => element === document.activeElement"):
                return
            self.keys.press("Tab")
        raise AssertionError(f"the keyboard does not reach {target}")

    def press(self, target: Locator) -> None:
        """Press a button."""
        self.focus(target)
        if self.hand == "keyboard":
            self.keys.press("Enter")

    def write(self, target: Locator, text: str) -> None:
        """Write a text into a field, in place of what it has."""
        self.focus(target)
        self.keys.press("Control+a")
        self.keys.type(text)

    def ask(self, question: str) -> None:
        """Ask a question."""
        self.write(self.playground["question"], question)
        self.keys.press("Enter")
        self.playground.answered()


@contextmanager
def open_playground(
    browser: Browser, service: ServiceProcess, *, scheme: Literal["light", "dark"] = "light", touch: bool = False
) -> Iterator[Playground]:
    """Open the page in a browser profile of its own, and check at the end that it caused no trouble."""
    url = f"http://127.0.0.1:{service.port}"
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme, has_touch=touch)
    context.set_default_timeout(10_000)
    opened = Playground(context.new_page(), url)
    yield opened
    opened.page.unroute_all(behavior="wait")  # a handler that still runs would fail in the next test
    kept = opened.page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]")
    context.close()
    assert opened.trouble == []
    assert [asked for _, asked in opened.asked if not asked.startswith((f"{url}/", "data:"))] == []
    assert kept == [0, 0, ""]


@pytest.fixture
def playground(browser: Browser, service: ServiceProcess) -> Iterator[Playground]:
    with open_playground(browser, service) as page:
        yield page.loaded()
