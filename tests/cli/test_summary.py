"""The last lines of a calibration, for each way in which it can end."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from taugate.calibration.comparison.publish import Promotion, Published
from taugate.cli import main as cli
from taugate.cli.terminal.promotion import CalibratedRelease, result
from taugate.registry.catalog import current_id, find
from taugate.release.layout import OUTCOMES, REPORT
from taugate.release.manifest import Manifest
from taugate.release.queries import CalibrationQuestion, Outcomes, read_calibration_questions
from taugate.release.verify import verify, verify_searchable
from taugate.service.metrics import Metrics
from tests.release.clones import clone, with_refusals, without_refusals

RELEASES = Path("my releases")


@pytest.fixture
def first(releases: Path) -> CalibratedRelease:
    """The sample's release as the first of its directory."""
    manifest = verify(find(releases))
    return CalibratedRelease("data", manifest, RELEASES / manifest.release_id, Promotion(), Published(True), None)


def test_first_release_names_state_both_lines_and_cut(first: CalibratedRelease) -> None:
    rows, tau, refusal = first.rows(), first.manifest.policy.tau, first.manifest.refusal
    assert [*rows] == ["State", "Certified", "Checked", "Cut", "Metrics", "Measured"]
    assert tau is not None
    assert refusal is not None
    assert (rows["State"], rows["Cut"]) == ("calibrated", f"τ = {tau:.3f}; ρ = {refusal.rho:.3f}")
    assert rows["Measured"] == "503 labelled queries on 503 documents, 30 % held out to measure"
    assert first.manifest.summary == f"Certified   {rows['Certified']}\nChecked     {rows['Checked']}"


def test_measured_threshold_leads_to_certified_one(first: CalibratedRelease) -> None:
    assert first.next_rows() == {
        "Open": "taugate serve --releases 'my releases'",
        "Report": f"my releases/{first.manifest.release_id}/report.html",
        "Next": "limit the loss to 2 %, with 95 % confidence:\n"
        "taugate calibrate data --releases 'my releases' --max-loss 0.02",
    }


def test_certified_threshold_needs_no_next_step(first: CalibratedRelease) -> None:
    policy = first.manifest.policy.model_copy(update={"statement": "high-probability"})
    certified = replace(first, manifest=first.manifest.model_copy(update={"policy": policy}))
    assert [*certified.next_rows()] == ["Open", "Report"]


def test_replaced_release_says_what_it_did(first: CalibratedRelease, releases: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(releases, tmp_path / "releases")
    path = copy / first.path.name
    silent, other = clone(path, 1, without_refusals), clone(path, 2, with_refusals)
    rows = replace(first, path=path, previous=other).rows()
    assert rows["Before"].startswith("Keeps 4.7 of 5 results, loses 1 of 151 answers")
    assert rows["Promotion"] == f"Promoted in place of {other}: it has a threshold, and no rule was given."
    assert "Before" not in replace(first, path=path, previous=silent).rows()
    assert "Before" not in replace(first, path=path, previous=first.path.name).rows()


def test_no_promote_leads_to_promotion(first: CalibratedRelease) -> None:
    kept = replace(first, request=Promotion(requested=False), ending=Published(), previous="old")
    assert kept.rows()["Promotion"] == "Not promoted, because of --no-promote. old remains the current release."
    name = first.path.name
    assert kept.next_rows()["Next"].endswith(f"\ntaugate release promote {name} --releases 'my releases'")
    assert "Open" not in kept.next_rows()


def test_release_without_safe_threshold_refers_to_message(first: CalibratedRelease) -> None:
    policy = first.manifest.policy.model_copy(update={"kind": "none", "tau": None})
    without = first.manifest.model_copy(update={"policy": policy})
    failed = replace(first, manifest=without, ending=Published(False, 3, "why", "no cut"))
    assert failed.rows()["Cut"].startswith("no τ; ρ = ")
    assert failed.rows()["Promotion"] == "Not promoted, for the reason below. No release is current yet."
    assert failed.next_rows()["Next"] == "read the message below, and the report."


def test_provisional_release_leads_to_judging(first: CalibratedRelease) -> None:
    record = first.manifest.calibration
    assert record is not None
    record = record.model_copy(update={"state": "provisional", "reasons": ["few_queries"], "human": 7})
    rows = replace(first, manifest=first.manifest.model_copy(update={"calibration": record}))
    assert next(iter(rows.rows())) == "State"
    assert rows.rows()["State"].startswith("provisional: it has 7 answerable queries")
    assert rows.next_rows()["Next"].endswith("\ntaugate judge data --releases 'my releases'")


def test_measured_without_holdout_says_so(first: CalibratedRelease) -> None:
    bootstrap = first.manifest.bootstrap.model_copy(update={"holdout": 0.0})
    data = first.manifest.data.model_copy(update={"split": "human"})
    rows = replace(first, manifest=first.manifest.model_copy(update={"bootstrap": bootstrap, "data": data})).rows()
    assert rows["Measured"] == (
        "503 labelled queries of the split human on 503 documents. They choose and check the threshold, so expect "
        "slightly worse results."
    )


def test_manifest_of_earlier_version_has_state_and_its_sentence(first: CalibratedRelease) -> None:
    assert "Certified" not in (rows := result(first.manifest.model_copy(update={"summary": None})))
    assert [*rows] == ["State", "Cut"]
    assert result(first.manifest.model_copy(update={"summary": "Keeps all."}))["Summary"] == "Keeps all."


def test_certified_release_prints_its_cost(first: CalibratedRelease) -> None:
    refusal = first.manifest.refusal
    assert refusal is not None
    counted = refusal.evidence["off_topic"]
    off_topic = counted.model_copy(update={"uncertified": counted.queries})
    record = refusal.model_copy(update={"evidence": refusal.evidence | {"off_topic": off_topic}})
    cost = result(first.manifest.model_copy(update={"refusal": record}))["Cost"]
    assert cost.startswith(
        f"{off_topic.queries} → {off_topic.refused} of {off_topic.queries} off-topic questions refused"
    )


# How each screen writes a figure: of answers lost, of each kind refused, of results kept or dropped, and the state.
FIGURES = {
    "lost": r"([\d,]+) of ([\d,]+) (?:held-out|calibration) (?:answers lost|queries with a relevant document)",
    "off-topic": r"(?<!→ )(?<![\d,])([\d,]+) of ([\d,]+) off-topic",
    "short": r"(?<!→ )(?<![\d,])([\d,]+) of ([\d,]+) short",
    "dropped": r"([\d.]+) % of the results dropped",
    "certified": r"at most ([\d.]+) of 100 questions lose their answer \((95) % confidence",
    "state": r"certified (\d+) %",
}


@pytest.fixture(scope="module")
def screens(
    releases: Path, sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """What each screen says of a release with a certified loss, by the name of the screen, and where it is."""
    folder = shutil.copytree(releases, tmp_path_factory.mktemp("screens") / "releases")
    first = current_id(folder)
    with pytest.MonkeyPatch.context() as patch:
        said: dict[str, list[str]] = {}
        for name, command in {
            "console": ["calibrate", str(sample), "--encoder", str(encoder), "--max-loss", "0.05"],
            "list": ["release", "list"],
            "show": ["release", "show"],
            "diff": ["release", "diff", str(first), "CURRENT"],
        }.items():
            lines = said.setdefault(name, [])
            for stream in ("stdout", "stderr"):
                patch.setattr(f"sys.{stream}", _Stream(lines))
            named = [str(current_id(folder)) if word == "CURRENT" else word for word in command]
            assert cli.main([*named, "--releases", str(folder)]) == 0
    texts = {name: "".join(lines) for name, lines in said.items()}
    release = folder / str(current_id(folder))
    report = (release / REPORT).read_text(encoding="utf-8")
    texts["report"] = unescape(re.sub("<[^>]+>", "", report)).replace("\u00a0", " ")
    texts["console"] = texts["console"].partition("\nBefore ")[0]
    texts["list"] = texts["list"].partition(release.name)[2]
    texts["diff"] = texts["diff"].partition(f"{release.name} is ")[2]
    yield {name: re.sub(r"\s+", " ", text) for name, text in texts.items()} | {"release": str(release)}


class _Stream:
    """A stream of text whose binary half is the same list."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self.buffer = lines, self
        self.encoding = "utf-8"

    def write(self, text: str | bytes) -> int:
        self.lines.append(text if isinstance(text, str) else text.decode())
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def test_screens_agree_on_every_figure(screens: dict[str, str]) -> None:
    found = {
        figure: {screen: {*re.findall(pattern, text)} for screen, text in screens.items() if screen != "release"}
        for figure, pattern in FIGURES.items()
    }
    for figure, by_screen in found.items():
        assert len({*map(str, by_screen.values())}) == 1, (figure, by_screen)
        assert all(len(values) == 1 for values in by_screen.values()), (figure, by_screen)


def test_figures_are_those_of_the_questions(screens: dict[str, str]) -> None:
    """Lost, dropped and kept are counted on the held-out queries by the thresholds in force."""
    release = Path(screens["release"])
    manifest = verify_searchable(release)
    checked, refusal, metrics = manifest.checked, manifest.refusal, manifest.metrics["heldout"]
    assert checked is not None
    assert refusal is not None
    outcomes = Outcomes.load(release / OUTCOMES, manifest.policy.k)
    assert (checked.lost, checked.answers) == (int((outcomes.hit & ~outcomes.hit_kept).sum()), int(outcomes.hit.sum()))
    assert outcomes.kept.mean() / manifest.policy.k == pytest.approx(metrics.kept_fraction)
    questions = [
        CalibrationQuestion.model_validate_json(line)
        for line in read_calibration_questions(release / "questions.jsonl")
    ]
    heldout = [question for question in questions if question.heldout]
    lost = sum(question.outcome(manifest.policy.tau, refusal.rho) == "lost" for question in heldout)
    assert lost == checked.lost
    assert checked.lower <= checked.mean == checked.lost / checked.answers <= checked.upper


def test_state_is_the_same_word_everywhere(screens: dict[str, str]) -> None:
    manifest = verify_searchable(Path(screens["release"]))
    assert isinstance(manifest, Manifest)
    assert manifest.state_in_words == "certified 5 %"
    assert "State certified 5 %" in screens["console"]
    assert f", {manifest.state_in_words}, made " in screens["report"]
    metrics = Metrics()
    metrics.set_release(manifest, 0.0)
    (info,) = (metric for metric in metrics.registry.collect() if metric.name == "taugate_release_info")
    assert [sample.labels["state"] for sample in info.samples] == ["certified 5 %"]
