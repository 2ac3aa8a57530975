"""What operators may read of the questions under an alarm: groups if the service keeps texts, and nothing otherwise."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from playground_tests.conftest import Person, open_playground
from tests.browser import cut_off, violations
from tests.prometheus_process import until
from tests.service.access.files import entry
from tests.service.drift import conftest as cosines
from tests.service.drift.traffic import FastDriftService, foreign_queries, ordinary, send, told

PATH = "/playground/new-questions"
releases = cosines.releases  # this fixture in place of that of all tests
FOREIGN = foreign_queries(800)


@pytest.fixture(scope="module")
def alarmed(releases: Path, sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastDriftService]:
    """A service that keeps texts, under an alarm. It has the keys `all`, with the scope metrics, and `user`."""
    keys = [entry("all", "tests", "metrics", "search"), entry("user", "user", "search")]
    log = str(tmp_path_factory.mktemp("alarmed") / "log")
    environment = {"TAUGATE_QUERY_LOG": log, "TAUGATE_KEYS": json.dumps(keys), "TAUGATE_QUERY_LOG_TEXTS": "true"}
    with FastDriftService(releases, None, None, **environment) as service:
        service.http.headers["Authorization"] = "Bearer all"
        service.ready()
        send(service, ordinary(sample, 600))
        assert service.http.get(PATH).json() == {"questions": []}
        send(service, FOREIGN)
        until(lambda: told(service)["alarm"] and service.http.get(PATH).json()["questions"], 60)
        yield service


def test_new_questions_under_alarm_are_grouped_for_operators(alarmed: FastDriftService) -> None:
    groups = alarmed.http.get(PATH).json()["questions"]
    assert len(groups) <= 10
    assert groups[0]["question"] in FOREIGN and groups[0]["count"] > 100
    refused = alarmed.http.get(PATH, headers={"Authorization": "Bearer user"})
    assert refused.status_code == 403


@pytest.mark.slow
@pytest.mark.parametrize(("hand", "scheme"), [("mouse", "dark"), ("keyboard", "light")])
def test_new_questions_are_found_in_playground_and_asked(
    browser: Browser, alarmed: FastDriftService, hand: Literal["mouse", "keyboard"], scheme: Literal["light", "dark"]
) -> None:
    with open_playground(browser, alarmed, scheme=scheme) as playground:
        person = Person(playground, hand)

        def use(key: str) -> None:
            if playground["access"].get_attribute("open") is None:
                person.press(playground["access"].locator("summary"))
            person.write(playground["key"], key)
            person.keys.press("Enter")

        use("user")
        playground["new-hint"].get_by_text("this API key lacks the scope metrics").wait_for()
        with playground.page.expect_response(f"**{PATH}") as reply:
            use("all")
        groups = reply.value.json()["questions"]
        total = sum(group["count"] for group in groups)
        expect(playground["new-title"]).to_contain_text(f"{total} questions unlike the calibration since ")
        person.press(playground["notice-drift"].get_by_role("button", name="See what is new"))
        rows = playground["new-list"].locator("li")
        expect(rows).to_have_count(len(groups))
        assert f"{groups[0]['count']} ×" in (rows.first.text_content() or "")
        playground.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        assert violations(playground.page) == []
        for width in (400, 800, 1280):
            playground.page.set_viewport_size({"width": width, "height": 900})
            assert cut_off(playground.page) == []
        person.press(rows.first.get_by_role("button"))
        playground.answered()
        assert playground["question"].input_value() == groups[0]["question"]
        playground.page.route(f"**{PATH}", lambda route: route.fulfill(json={"questions": None}))
        person.ask("permit")
        playground["new-hint"].get_by_text("The service keeps no texts").wait_for()
        assert not playground["new-part"].is_visible()


def test_service_without_texts_has_no_new_questions(releases: Path, tmp_path: Path) -> None:
    with FastDriftService(releases, TAUGATE_QUERY_LOG=str(tmp_path / "log")) as service:
        service.ready()
        send(service, foreign_queries(800))
        until(lambda: told(service)["alarm"], 60)
        assert service.http.get(PATH).json() == {"questions": None}
