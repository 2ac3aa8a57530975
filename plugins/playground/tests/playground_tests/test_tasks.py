"""What people come to the playground for, each with the mouse and with the keyboard alone."""

import json
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from playground_tests.conftest import QUESTION, Person, open_playground
from taugate.cli import main as cli
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two_releases(tmp_path_factory: pytest.TempPathFactory, releases: Path, sample: Path, encoder: Path) -> Path:
    """A releases directory with a shadow release whose thresholds are higher."""
    folder = tmp_path_factory.mktemp("trial") / "releases"
    shutil.copytree(releases, folder)
    at = ["--releases", str(folder)]
    higher = ["--policy", "similarity", "--tau", "0.5", "--refuse", "0.45", "--lexical", "0.7"]
    assert cli.main(["calibrate", str(sample), *at, "--encoder", str(encoder), *higher, "--no-promote"]) == 0
    (shadow,) = {path.name for path in folder.glob("*Z-*")} - {(folder / "current").read_text().strip()}
    assert cli.main(["release", "shadow", shadow, *at]) == 0
    return folder


@pytest.fixture(scope="module")
def on_trial(two_releases: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(two_releases) as process:
        yield process.ready().with_shadow()


@pytest.fixture(params=["mouse", "keyboard"])
def person(request: pytest.FixtureRequest, browser: Browser, on_trial: ServiceProcess) -> Iterator[Person]:
    with open_playground(browser, on_trial) as page:
        page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield Person(page.loaded(), request.param)


def listed(service: ServiceProcess, release: str) -> dict[str, Any]:
    """Return the questions of a release with its thresholds."""
    return dict(service.http.get("/playground/questions", params={"release": release}).raise_for_status().json())


def outcome(question: dict[str, Any], tau: float, rho: float) -> str:
    """Say what becomes of a question in a release with both thresholds, by the contract, which compares float32."""
    if np.float32(question["refusal"]) < np.float32(rho):
        return "refused" if question["rank"] is None else "lost"
    if question["kind"] != "answerable":
        return "answered"
    if question["rank"] is None:
        return "missed"
    return "kept" if np.float32(question["right"]) >= np.float32(tau) or question["rank"] == 1 else "lost"


def test_missing_document_is_found_by_its_text_and_explained(person: Person, on_trial: ServiceProcess) -> None:
    playground = person.playground
    person.ask(QUESTION)
    words = "asbestos-cement"
    with playground.page.expect_response(lambda reply: f'"{words}"' in (reply.request.post_data or "")):
        person.write(playground["document"], words)  # a slow machine also searches for the first of its letters
    match = playground["matches"].locator("button").first
    expect(playground["matches"]).to_contain_text("eternit")
    name = match.text_content() or ""
    person.press(match)
    why = on_trial.http.post("/explain", json={"query": QUESTION, "document_id": name}).json()["why"]
    playground["explanation"].get_by_text(why).wait_for()


def test_threshold_that_refuses_off_topic_questions_is_chosen_and_made(
    person: Person, two_releases: Path, sample: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    playground, slider = person.playground, person.playground["rho-slider"]
    before = playground["effect"].text_content() or ""
    person.focus(slider)
    while "150 of 150 off-topic questions refused" not in (playground["effect"].text_content() or ""):
        assert slider.get_attribute("aria-valuenow") != slider.get_attribute("aria-valuemax")
        if person.hand == "keyboard":
            person.keys.press("PageUp")
        else:
            box, mouse = slider.bounding_box(), playground.page.mouse
            assert box is not None
            mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            mouse.down()
            mouse.move(box["x"] + box["width"] / 2 + 20, box["y"] + box["height"] / 2, steps=4)
            mouse.up()
    assert playground["summary"].text_content() == f"As calibrated:\n{before}"
    wrong = playground.page.locator("#questions-body").get_by_text("Answered")
    expect(wrong).to_have_count(0)  # the list is drawn a frame later than the effect
    person.press(playground["copy-tau"])
    playground["copied-tau"].get_by_text("Copied.").wait_for()
    command = playground.page.evaluate("navigator.clipboard.readText()")
    rho = float(slider.get_attribute("aria-valuenow") or "nan")
    assert re.search(rf"--policy similarity --tau 0\.\d+ --refuse {rho:.3f}$", command)
    for placeholder, path in {"DATA": sample, "DIR": two_releases, "--encoder fake": f"--encoder {encoder}"}.items():
        command = command.replace(placeholder, str(path))
    program, *arguments = shlex.split(command)
    assert program == "taugate"
    capsys.readouterr()
    assert cli.main([*arguments, "--no-promote", "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)["manifest"]
    assert manifest["refusal"]["rho"] == pytest.approx(rho)
    counted = manifest["refusal"]["evidence"]["off_topic"]
    assert (counted["queries"], counted["refused"]) == (150, 150)
    (lost,) = re.findall(r"\d+ of \d+ held-out answers lost", playground["effect"].text_content() or "")
    assert f"Checked     {lost}; 150 of 150 off-topic" in manifest["summary"]


def test_two_releases_are_compared(person: Person, on_trial: ServiceProcess) -> None:
    playground = person.playground
    sides = [listed(on_trial, release) for release in ("current", "shadow")]
    before, after = (
        {each["text"]: outcome(each, side["threshold"], side["rho"]) for each in side["questions"]} for side in sides
    )
    changes = Counter(f"{before[text]} → {after[text]}" for text in before if before[text] != after[text])
    assert changes
    expect(playground["changes"]).to_contain_text("calibration questions change.")
    shown = playground["changes"].locator("li").all_text_contents()
    assert shown[0] == f"{changes.total()} of {len(before)} calibration questions change."
    assert sorted(shown[1:]) == sorted(f"{count}: {change}" for change, count in changes.items())
    person.ask(QUESTION)
    person.press(playground["compare-part"].locator("summary"))
    playground["compared"].get_by_text(f"Shadow: {sides[1]['release']}").wait_for()
    reply = on_trial.http.post("/playground/shadow", json={"query": QUESTION, "min_results": 5}).json()
    column = playground["compared"].locator("> div").nth(1).locator("li").all_text_contents()
    assert [f" {each['score']:.3f}, {'dropped' if each['below_threshold'] else 'kept'}" in text
            for each, text in zip(reply["results"], column, strict=True)] == [True] * 5  # fmt: skip


def test_ten_results_are_judged(person: Person, on_trial: ServiceProcess) -> None:
    def judged() -> float:
        counted = re.findall(
            r'taugate_feedback_total{outcome="(?:ir)?relevant"} (\S+)', on_trial.http.get("/metrics").text
        )
        return sum(map(float, counted))

    playground, before = person.playground, judged()
    for question in (QUESTION, "What is a bygglov (building permit)?"):
        person.ask(question)
        if person.hand == "keyboard":
            person.press(playground["judge-results"])
            for key in "ynnny":
                person.keys.press(key)
        else:
            for row, name in enumerate(["Relevant", *["Not relevant"] * 3, "Relevant"]):
                playground.results.nth(row).get_by_role("button", name=name, exact=True).click()
        expect(playground.page.locator(".result [aria-pressed=true]")).to_have_count(5)
    playground["judged"].get_by_text("10 judged here, for 2 questions with a relevant result").wait_for()
    assert judged() == before + 10


def test_calibration_questions_are_sorted_chosen_and_asked(person: Person, on_trial: ServiceProcess) -> None:
    playground, side = person.playground, listed(on_trial, "current")
    person.press(playground["questions-head"].get_by_role("button", name="Best score"))
    lowest = min(side["questions"], key=lambda each: each["best"])
    first = playground["questions-body"].locator("tr").first
    assert f"{lowest['best']:.3f}" in (first.text_content() or "")
    playground["only"].select_option(label=re.search(r"Refused \(\d+\)", playground["only"].text_content() or "")[0])  # type: ignore[index]
    refused = [
        each
        for each in side["questions"]
        if each["kind"] == "answerable" and outcome(each, side["threshold"], side["rho"]) == "refused"
    ]
    assert playground["questions-count"].text_content() == f"{len(refused)} of {len(refused)} questions."
    person.press(first.get_by_role("button"))
    playground.answered()
    assert playground["question"].input_value() in {each["text"] for each in refused}
    assert playground.verdict.startswith("Refused")


def test_address_brings_back_question_and_thresholds(person: Person) -> None:
    playground = person.playground
    person.ask(QUESTION)
    person.focus(playground["slider"])
    person.keys.press("End")
    expect(playground.page).to_have_url(re.compile("[?&]tau="))
    person.ask("What is a bygglov (building permit)?")
    tau, address = playground["slider"].get_attribute("aria-valuenow"), playground.page.url
    playground.page.go_back()
    expect(playground["question"]).to_have_value(QUESTION)
    playground.page.goto(address)
    playground.loaded().answered()
    assert playground["slider"].get_attribute("aria-valuenow") == tau
    assert "bygglov" in playground["question"].input_value()
    assert playground.results.count() == 5


def test_example_questions_are_asked_and_remembered(person: Person) -> None:
    playground = person.playground
    examples = playground["examples"].locator("button")
    assert examples.count() == 6
    assert sum((text or "").startswith("Off topic: ") for text in examples.all_text_contents()) == 2
    person.press(examples.first)
    playground.answered()
    person.ask(QUESTION)
    person.press(playground["recent"].locator("summary"))
    person.press(playground["recent-list"].locator("button").nth(1))
    playground.answered()
    assert playground["question"].input_value() == examples.first.text_content()
