"""All screens of one release have the same figures of what is kept, lost, refused and certified."""

import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import current_id
from taugate.release.layout import OUTCOMES, REPORT
from taugate.release.manifest import Manifest
from taugate.release.queries import CalibrationQuestion, Outcomes, read_calibration_questions
from taugate.release.verify import verify_searchable
from taugate.service.metrics import Metrics

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
