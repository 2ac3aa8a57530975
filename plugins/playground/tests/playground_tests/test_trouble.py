"""The playground with problems: expired keys, and a service that is down, slow or busy."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from playground_tests.conftest import QUESTION, Playground, open_playground
from tests.service.access.files import entry, write
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow

FIRST, SECOND = "first-secret", "second-secret"
SCOPES = ("search", "feedback")
ENDED = "2020-01-01T00:00:00Z"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write(tmp_path / "keys.json", [entry(FIRST, "first", *SCOPES), entry(SECOND, "second", *SCOPES)])


@pytest.fixture
def keyed(releases: Path, keys: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys)) as process:
        yield process.ready()


def enter(playground: Playground, key: str) -> None:
    playground["key"].fill(key)
    playground["key"].press("Enter")


def test_expired_key_is_replaced(browser: Browser, keyed: ServiceProcess, keys: Path) -> None:
    with open_playground(browser, keyed) as playground:
        playground["notice-key"].get_by_text("No API key").wait_for()
        playground["notice-key"].get_by_role("button", name="Enter a key").click()
        enter(playground, FIRST)
        playground.loaded().ask()
        assert "$TAUGATE_KEY" in (playground["snippet"].text_content() or "")
        write(keys, [entry(FIRST, "first", *SCOPES, expires=ENDED), entry(SECOND, "second", *SCOPES)])
        headers = {"Authorization": f"Bearer {FIRST}"}
        playground.page.wait_for_timeout(100)
        for _ in range(100):  # the service reads the file within two seconds
            if keyed.http.get("/release", headers=headers).status_code == 401:
                break
            playground.page.wait_for_timeout(100)
        playground["question"].fill("Is an inspector insured?")
        playground["question"].press("Enter")
        playground["notice-key"].get_by_text("This API key has expired. Your input is kept.").wait_for()
        expect(playground["key"]).to_be_focused()  # later, if the page had just asked for the release by itself
        assert playground["service"].text_content() == "Needs a key"
        enter(playground, "wrong")
        playground["notice-key"].get_by_text("This API key is unknown").wait_for()
        with playground.page.expect_response(lambda reply: reply.url.endswith("/search") and reply.ok) as answered:
            enter(playground, SECOND)
        assert "Is an inspector insured?" in (answered.value.request.post_data or "")
        playground["notice-key"].wait_for(state="detached")
        assert playground["question"].input_value() == "Is an inspector insured?"
        page = playground.page.content()
        assert not any(secret in page or secret in playground.page.url for secret in (FIRST, SECOND))


def test_unsendable_key_is_refused(playground: Playground) -> None:
    playground.page.get_by_text("API key", exact=True).first.click()
    enter(playground, "schlüssel")
    playground["notice-key"].get_by_text("This is not an API key").wait_for()
    playground.ask()
    assert playground["notice-connection"].count() == 0
    assert playground.results.count() > 0


def test_filtered_key_hides_release(browser: Browser, releases: Path, tmp_path: Path) -> None:
    """A key with a filter is about some of the documents: it searches, and the page says why the rest is not shown."""
    keys = write(tmp_path / "keys.json", [entry(FIRST, "tenant", *SCOPES, filter={"category": "takläggning"})])
    with (
        ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys)) as service,
        open_playground(browser, service.ready()) as playground,
    ):
        playground["notice-key"].wait_for()
        playground["question"].fill(QUESTION)
        playground["notice-key"].get_by_role("button", name="Enter a key").click()
        enter(playground, FIRST)
        playground["effect"].get_by_text("this API key has a filter").wait_for()
        playground["release-facts"].get_by_text("this API key has a filter").wait_for()
        playground.ask()
        assert playground.results.count() > 0


def test_page_survives_service_restart(browser: Browser, releases: Path) -> None:
    with ServiceProcess(releases) as first, open_playground(browser, first.ready()) as playground:
        playground.loaded().ask()
        playground["slider"].press("PageUp")
        tau = playground["slider"].get_attribute("aria-valuenow")
        first.stop()
        playground["question"].fill("Is an inspector insured?")
        playground["question"].press("Enter")
        playground["notice-connection"].get_by_text("is not responding. Your input is kept").wait_for()
        playground["notice-connection"].get_by_text("Trying again in").wait_for()
        assert playground["service"].text_content() == "Not responding"
        assert playground.results.count() > 0, "the results before stay"
        playground["notice-connection"].get_by_role("button", name="Try now").click()
        with ServiceProcess(releases, first.port) as second:
            second.ready()
            playground["notice-connection"].wait_for(state="detached")
            playground["service"].get_by_text("Ready").wait_for()
            playground.answered()
            assert "Is an inspector insured?" in (playground["snippet"].text_content() or "")
            assert playground["slider"].get_attribute("aria-valuenow") == tau
            assert playground["question"].input_value() == "Is an inspector insured?"
            assert "τ was moved" in playground.verdict


def hold(routes: list[Route]) -> Callable[[Route], None]:
    """Keep requests from the service, in a list."""

    def keep(route: Route) -> None:
        routes.append(route)

    return keep


def test_slow_service_shows_notice(playground: Playground) -> None:
    held: list[Route] = []
    playground.page.route("**/search", hold(held), times=1)
    playground["question"].fill(QUESTION)
    playground["question"].press("Enter")
    playground["notice-slow"].get_by_text("The service is responding slowly. Waiting for").wait_for()
    assert playground["ask-form"].locator(".main").text_content() == "Searching …"
    held[0].continue_()
    playground.answered()
    playground["notice-slow"].wait_for(state="detached")


def test_busy_service_is_retried(playground: Playground) -> None:
    def busy(route: Route) -> None:
        told = {"error": {"code": "overloaded", "message": "256 queries are waiting", "request_id": "-"}}
        route.fulfill(status=429, json=told, headers={"Retry-After": "1"})

    playground.page.route("**/search", busy, times=1)
    playground["question"].fill(QUESTION)
    playground["question"].press("Enter")
    playground["notice-connection"].get_by_text("is busy: 256 queries are waiting").wait_for()
    playground.answered()
    playground["notice-connection"].wait_for(state="detached")


def test_only_last_question_is_shown(playground: Playground) -> None:
    held: list[Route] = []
    playground.page.route("**/search", hold(held), times=1)
    playground["question"].fill("Is an inspector insured?")
    playground["question"].press("Enter")
    while not held:
        playground.page.wait_for_timeout(10)
    playground.ask()
    shown = playground.results.first.text_content()
    assert len(held) == 1
    held[0].abort()
    playground.page.wait_for_timeout(50)
    assert playground.results.first.text_content() == shown
    assert playground["notice-connection"].count() == 0
