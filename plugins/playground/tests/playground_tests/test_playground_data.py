"""What only the playground requests: calibration questions, documents by a part of their text, and the shadow."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.cli import main as cli
from tests.service.access.files import entry, write
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
