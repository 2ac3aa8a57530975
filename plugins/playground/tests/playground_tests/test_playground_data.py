"""What only the playground requests: calibration questions, documents by a part of their text, and the shadow."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, expect

from playground_tests.conftest import Person, open_playground
from taugate.cli import main as cli
from taugate.service.api.pages import PAGE_HEADERS
from taugate.service.app import create_app
from taugate.service.settings import Settings
from taugate_playground.routes import page_files
from tests.browser import cut_off, violations
from tests.prometheus_process import until
from tests.service.access.files import ENTRIES, entry, write
from tests.service.drift import conftest as cosines
from tests.service.drift.traffic import FastDriftService, foreign_queries, ordinary, send, told
from tests.service_process import ServiceProcess

QUERY = "How long does an energy declaration remain valid?"


def test_questions_come_in_pages_with_thresholds(service: ServiceProcess) -> None:
    page = service.http.get("/playground/questions").json()
    manifest = service.http.get("/release").json()["manifest"]
    assert (page["threshold"], page["rho"]) == (manifest["policy"]["tau"], manifest["refusal"]["rho"])
    kinds = [question["kind"] for question in page["questions"]]
    assert page["total"] == len(kinds) == 503 + manifest["refusal"]["evidence"]["off_topic"]["queries"]
    assert kinds.count("off_topic") == manifest["refusal"]["evidence"]["off_topic"]["queries"]
    later = service.http.get("/playground/questions", params={"offset": 500}).json()
    assert later["questions"] == page["questions"][500:]
    assert service.http.get("/playground/questions", params={"offset": 5000}).json()["questions"] == []


@pytest.mark.parametrize("parameters", [{"offset": "-1"}, {"offset": "x"}, {"release": "other"}])
def test_invalid_page_is_422(service: ServiceProcess, parameters: dict[str, str]) -> None:
    reply = service.http.get("/playground/questions", params=parameters)
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid")


def test_questions_have_scores_of_searches(service: ServiceProcess) -> None:
    for question in service.http.get("/playground/questions").json()["questions"][::60]:
        reply = service.search(question["text"], min_results=5)
        assert [result["score"] for result in reply["results"]] == pytest.approx(question["values"], abs=1e-5)
        assert reply["refusal"]["score"] == pytest.approx(question["refusal"], abs=1e-5)
        reason = service.search(question["text"])["reason"]
        assert (reason == "unanswerable") == (question["refusal"] < reply["refusal"]["rho"])


@pytest.mark.parametrize("part", ["ASBESTOS-cement roofs", "tak-013", "  asbestos-cement\n roofs "])
def test_document_is_found_by_part_of_text_or_id(service: ServiceProcess, part: str) -> None:
    reply = service.http.post("/playground/documents", json={"text": part}).json()
    assert reply["documents"][0]["id"] == "tak-013"
    assert "Asbestos-cement" in reply["documents"][0]["text"]
    assert reply["complete"]


def test_frequent_word_finds_eight_documents(service: ServiceProcess) -> None:
    reply = service.http.post("/playground/documents", json={"text": "permit"}).json()
    assert len(reply["documents"]) == 8
    assert all("permit" in f"{each['id']} {each['text']}".casefold() for each in reply["documents"])
    assert service.http.post("/playground/documents", json={"text": "zzz"}).json()["documents"] == []


def test_shadow_that_is_missing_is_404(service: ServiceProcess) -> None:
    for reply in (
        service.http.get("/playground/questions", params={"release": "shadow"}),
        service.http.post("/playground/shadow", json={"query": QUERY}),
    ):
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
        assert "taugate release shadow" in reply.json()["error"]["message"]


@pytest.fixture(scope="module")
def on_trial(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service whose shadow is a copy of its release without a document, with keys of all kinds."""
    folder = tmp_path_factory.mktemp("trial") / "releases"
    shutil.copytree(releases, folder)
    current = (folder / "current").read_text().strip()
    at = ["--releases", str(folder)]
    assert cli.main(["release", "erase", current, "tak-013", *at]) == 0
    (shadow,) = {path.name for path in folder.glob("*Z-*")} - {current}
    assert cli.main(["release", "shadow", shadow, *at]) == 0
    rows = [entry("all", "all", "search"), entry("some", "some", "search", filter={"category": "takläggning"})]
    keys = write(folder.parent / "keys.json", [*rows, entry("operator", "operator", "metrics")])
    with ServiceProcess(folder, TAUGATE_KEYS_FILE=str(keys)) as process:
        yield process.ready().with_shadow(Authorization="Bearer all")


def test_shadow_replies_with_its_documents(on_trial: ServiceProcess) -> None:
    headers, body = {"Authorization": "Bearer all"}, {"query": "asbestos-cement roofs", "min_results": 5}
    shadow = on_trial.http.post("/playground/shadow", json=body, headers=headers).json()
    current = on_trial.http.post("/search", json=body, headers=headers).json()
    assert shadow["release"] != current["release"]
    ids = [[result["id"] for result in reply["results"]] for reply in (current, shadow)]
    assert [name for name in ids[0] if name != "tak-013"] == ids[1][: len(ids[0]) - 1]
    assert "tak-013" in ids[0]


def test_release_with_erased_documents_lists_no_questions(on_trial: ServiceProcess) -> None:
    headers = {"Authorization": "Bearer all"}
    page = on_trial.http.get("/playground/questions", params={"release": "shadow"}, headers=headers).json()
    assert (page["total"], page["questions"]) == (0, [])


@pytest.mark.parametrize("key", ["some", "operator"])
def test_key_that_may_not_see_everything_is_403(on_trial: ServiceProcess, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    replies = [on_trial.http.get("/playground/questions", headers=headers)]
    for path, body in {"documents": {"text": "permit"}, "shadow": {"query": QUERY}}.items():
        replies.append(on_trial.http.post(f"/playground/{path}", json=body, headers=headers))
    assert [reply.status_code for reply in replies] == [403, 403, 403], json.dumps([each.json() for each in replies])


PATHS = {"/playground": "text/html", "/playground/app.css": "text/css", "/playground/app.js": "text/javascript"}


@pytest.fixture(scope="module")
def keyed(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    keys = write(tmp_path_factory.mktemp("keys") / "keys.json", ENTRIES)
    with ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys)) as process:
        yield process.ready()


@pytest.mark.parametrize("path", PATHS)
def test_page_files_are_public(keyed: ServiceProcess, path: str) -> None:
    reply = keyed.http.get(path)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == f"{PATHS[path]}; charset=utf-8"
    file = page_files()[path.removeprefix("/playground") and path[1:]]
    assert reply.content == file.content
    for name, value in PAGE_HEADERS.items():
        assert reply.headers.get_list(name) == [value], "once: of two policies, both would hold"
    assert reply.headers.get_list("cache-control") == ["no-cache"]
    assert reply.headers["x-frame-options"] == "DENY"
    head = keyed.http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-length", "content-type", "etag", "content-security-policy"):
        assert head.headers[name] == reply.headers[name]
    refused = keyed.http.post(path)
    assert (refused.status_code, {*refused.headers["allow"].split(", ")}) == (405, {"GET", "HEAD"})
    for other in ("/", "/app.css", "%2f", "/app.html"):
        assert keyed.http.get(f"{path}{other}").status_code in ({200} if f"{path}{other}" in PATHS else {404})


def test_unchanged_file_is_304(service: ServiceProcess) -> None:
    tag = service.http.get("/playground").headers["etag"]
    for sent in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        reply = service.http.get("/playground", headers={"If-None-Match": sent})
        assert (reply.status_code, reply.content, reply.headers["etag"]) == (304, b"", tag)
    assert service.http.get("/playground", headers={"If-None-Match": '"other"'}).status_code == 200
    assert len({file.etag for file in page_files().values()}) == 3


def test_content_policy_has_no_unsafe_source() -> None:
    policy = PAGE_HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self'; ")


@pytest.mark.parametrize(
    ("setting", "host", "served"),
    [
        ("auto", "127.0.0.1", True),
        ("auto", "::1", True),
        ("auto", "localhost", True),
        ("auto", "0.0.0.0", False),  # noqa: S104 (nothing listens)
        ("auto", "search.example.org", False),
        ("on", "0.0.0.0", True),  # noqa: S104
        ("off", "127.0.0.1", False),
    ],
)
def test_playground_follows_host_and_setting(releases: Path, setting: str, host: str, served: bool) -> None:
    app = create_app(Settings(releases=releases, host=host, playground=setting, allow_unauthenticated=True))
    http = TestClient(app, base_url="http://127.0.0.1")
    for path in PATHS:
        reply = http.get(path)
        assert reply.status_code == (200 if served else 404)
        assert (path in http.get("/openapi.json").json()["paths"]) == served
        if not served:
            assert reply.json()["error"]["code"] == "not_found"


def test_page_requests_are_counted_by_route(service: ServiceProcess) -> None:
    for path in PATHS:
        service.http.get(path)
    counted = service.http.get("/metrics").text
    for path in PATHS:
        assert f'taugate_requests_total{{code="200",route="{path}"}}' in counted


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
