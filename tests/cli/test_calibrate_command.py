"""`taugate calibrate --promote-if RULE`: promoted or written and left, by an exit code that a CronJob can act on."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.ingestion.dataset import beir as dataset
from taugate.registry import history
from taugate.registry.catalog import current_id, release_ids
from taugate.registry.promotion import promote
from tests.calibration.commands import arguments, refusal
from tests.calibration.comparison.measured import hits, release_with
from tests.retrieval.release.clones import clone

Run = Callable[..., tuple[int, dict, str]]
LABELS = ["Measured", "Threshold", "Promotion", "Report", "Next"]
Refused = Callable[..., list[str]]
RULE = "accuracy not lower by more than 0.1 and kept share not higher"


@pytest.fixture
def calibrated(sample: Path, encoder: Path, copy: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Exit code, the whole JSON object and stderr."""

    def run(*more: str, rule: str = RULE) -> tuple[int, dict, str]:
        capfd.readouterr()
        code = cli.main(arguments(sample, copy, encoder, "--json", "--promote-if", rule, *more))
        printed = capfd.readouterr()
        return code, json.loads(printed.out), printed.err

    return run


def summary(error: str) -> dict[str, str]:
    """The five lines for everybody, by their labels; only one line with an error may follow."""
    lines = error.splitlines()
    lines = lines[:-1] if lines[-1].startswith("taugate: ") else lines
    found = {line.split()[0]: line for line in lines[-len(LABELS) :]}
    assert [*found] == LABELS
    return found


def details(error: str) -> list[str]:
    """The lines before those five."""
    return error[: error.index("\nMeasured ")].splitlines()


@pytest.fixture
def refused(sample: Path, encoder: Path, copy: Path, capfd: pytest.CaptureFixture[str]) -> Refused:
    """The lines on stderr of a calibration that ends with 2."""

    def run(*more: str, rule: str = RULE) -> list[str]:
        capfd.readouterr()
        assert cli.main(arguments(sample, copy, encoder, "--promote-if", rule, *more)) == 2
        return capfd.readouterr().err.splitlines()

    return run


def test_a_cut_that_loses_little_and_keeps_less_is_promoted(copy: Path, first: str, calibrated: Run) -> None:
    """The same queries: the papers' rule is current, and a certified cut of 5 % is new."""
    code, printed, error = calibrated("--max-loss", "0.05")
    assert code == 0
    assert current_id(copy) == printed["release"]
    found = printed["promotion"]
    assert (found["current"], found["promoted"], found["reason"]) == (first, True, None)
    assert found["rule"] == "accuracy not lower by more than 0.1 and kept share not higher by more than 0.02"
    accuracy, kept = found["clauses"]
    assert (accuracy["quantity"], accuracy["not"], accuracy["margin"]) == ("accuracy", "lower", 0.1)
    assert (accuracy["finding"], accuracy["test"], accuracy["queries"]) == ("holds", "paired", [151, 151])
    assert accuracy["current"] - accuracy["new"] <= accuracy["worse_by_at_most"] <= 0.1
    assert kept["new"] < kept["current"]
    assert kept["new"] == pytest.approx(printed["manifest"]["metrics"]["heldout"]["kept_fraction"])
    assert kept["worse_by_at_most"] < 0
    said, widened, _ = details(error)[-3:]
    assert said.startswith("promotion: accuracy not lower by more than 0.1: holds, ")
    assert widened.startswith('warning: the margin of "kept share not higher" is 0.02 in place of 0.01: 151 queries ')
    assert (accuracy["widened"], kept["widened"]) == (False, True)
    assert history.read(copy).events[-1].rule == found["rule"]


def test_a_cut_that_keeps_more_is_written_and_not_promoted(copy: Path, first: str, calibrated: Run) -> None:
    current = release_with(copy / first, 0, hits(0.2, 151, kept=1))
    promote(copy, current)
    code, printed, error = calibrated()
    assert code == 4
    assert current_id(copy) == current
    assert printed["release"] in release_ids(copy)
    assert printed["promotion"]["promoted"] is False
    assert [clause["finding"] for clause in printed["promotion"]["clauses"]] == ["holds", "worse"]
    last = error.splitlines()[-1]
    assert last.startswith(f"taugate: {printed['release']}: not promoted, as the rule does not hold: ")
    assert '"kept share not higher by more than 0.01" (worse)' in last


def test_the_first_release_is_promoted(sample: Path, encoder: Path, tmp_path: Path) -> None:
    assert cli.main(arguments(sample, tmp_path / "new", encoder, "--promote-if", RULE)) == 0
    assert current_id(tmp_path / "new") == release_ids(tmp_path / "new")[0]


def test_the_same_data_again_leave_the_current_release(copy: Path, first: str, calibrated: Run) -> None:
    code, printed, error = calibrated(rule="accuracy not lower")
    assert code == 0
    found = printed["promotion"]
    assert (found["promoted"], found["reason"], found["clauses"]) == (False, "same content", [])
    assert details(error)[-1] == "promotion: the same content as the current release, which stays"
    assert f"Not needed: {first} has the same content" in summary(error)["Promotion"]
    assert current_id(copy) == first


def test_without_a_safe_threshold_no_rule_is_asked(copy: Path, first: str, calibrated: Run) -> None:
    code, printed, error = calibrated("--max-loss", "0.001", rule="kept share not lower by more than 0.9")
    assert code == 3
    assert current_id(copy) == first
    assert (printed["promotion"]["promoted"], printed["promotion"]["reason"]) == (False, "no cut")
    assert "promotion:" not in error


def test_without_a_holdout_it_is_said_whose_figures_these_are(calibrated: Run) -> None:
    code, printed, error = calibrated("--holdout", "0", rule="accuracy not lower by more than 0.5")
    assert code == 0
    assert printed["promotion"]["clauses"][0]["queries"] == [151, 503]
    warning = (
        f"warning: {printed['release']} was calibrated with --holdout 0: its figures are of the queries that chose"
    )
    assert any(line.startswith(warning) for line in error.splitlines())


def test_nothing_is_said_of_a_promotion_that_was_not_asked_for(
    sample: Path, encoder: Path, copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    assert cli.main(arguments(sample, copy, encoder, "--json", "--no-promote")) == 0
    assert "promotion" not in json.loads(capfd.readouterr().out)


REFUSED = [
    (["--promote-if", "acuracy not lower"], '--promote-if "acuracy not lower": "acuracy" is not known'),
    (["--promote-if", RULE, "--no-promote"], "--promote-if: --no-promote promotes nothing"),
]


@pytest.mark.parametrize(("more", "says"), REFUSED)
def test_what_cannot_be_asked_is_said_before_any_work(
    more: list[str], says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither the data nor the encoder are looked for."""
    said = refusal(arguments(tmp_path / "none", tmp_path / "r", tmp_path / "none", *more), tmp_path / "r", capfd)
    assert said.startswith(says)


CURRENT = [
    (["--k", "7"], "accuracy not lower", "--k 7: the current release {first} has K = 5, and no rule compares the two"),
    ([], "unanswerable empty not lower", "{first}: was calibrated without unanswerable queries"),
]


@pytest.mark.parametrize(("more", "rule", "says"), CURRENT)
def test_what_the_current_release_cannot_be_asked_is_said_before_any_work(  # noqa: PLR0917
    more: list[str], rule: str, says: str, copy: Path, first: str, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "read_objects", lambda *_: pytest.fail("read"))
    assert refused(*more, rule=rule)[0].startswith(f"taugate: {says.format(first=first)}")
    assert release_ids(copy) == [first]


def test_a_current_release_that_is_damaged_is_said_before_any_work(copy: Path, first: str, refused: Refused) -> None:
    (copy / first / "index.faiss").write_bytes(b"")
    assert "index.faiss" in refused()[-1]
    assert release_ids(copy) == [first]


def test_what_is_not_promoted_in_the_end_is_not_lost(
    copy: Path, first: str, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody promotes another release while this one is calibrated."""
    other = clone(copy / first, 0, lambda manifest: manifest["policy"].update(k=6))
    monkeypatch.setattr("taugate.calibration.job.job.check_sizes", lambda *_: promote(copy, other))
    error = refused()
    (name,) = set(release_ids(copy)) - {first, other}
    assert error[-2] == f"{copy / name} is written, and is not promoted:"
    assert error[-1].startswith(f"taugate: {name}: has K = 5, the current release {other} 6, and no rule compares")
    assert current_id(copy) == other


def test_the_help_has_a_group_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["calibrate", "--help"])
    shown = capsys.readouterr().out
    assert shown.index("\npromotion:\n") < shown.rindex("--promote-if RULE") < shown.rindex("--no-promote")
