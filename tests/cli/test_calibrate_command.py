"""`taugate calibrate` with a promotion rule: the release is promoted or left, and the exit code says which."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.data import corpus
from taugate.registry import history
from taugate.registry.catalog import current_id, release_ids
from taugate.registry.promotion import promote
from tests.calibration.commands import arguments, refusal
from tests.calibration.comparison.measured import hits, release_with
from tests.release.clones import clone

Run = Callable[..., tuple[int, dict, str]]
Refused = Callable[..., list[str]]
LABELS = ["Certified", "Checked", "Measured", "Promotion", "Report"]
RULE = ["--max-accuracy-drop", "0.1", "--max-kept-increase", "auto"]


@pytest.fixture
def calibrated(sample: Path, encoder: Path, copy: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Exit code, the whole JSON object and stderr."""

    def run(*options: str, rule: Sequence[str] = RULE) -> tuple[int, dict, str]:
        capfd.readouterr()
        code = cli.main(arguments(sample, copy, encoder, "--json", *rule, *options))
        printed = capfd.readouterr()
        return code, json.loads(printed.out), printed.err

    return run


@pytest.fixture
def refused(sample: Path, encoder: Path, copy: Path, capfd: pytest.CaptureFixture[str]) -> Refused:
    """The lines on stderr of a calibration that ends with 2."""

    def run(*options: str, rule: Sequence[str] = RULE) -> list[str]:
        capfd.readouterr()
        assert cli.main(arguments(sample, copy, encoder, *rule, *options)) == 2
        return capfd.readouterr().err.splitlines()

    return run


def summary(error: str) -> dict[str, str]:
    """The lines for everybody, by their labels."""
    lines = error[error.index("\nState ") :].splitlines()[1:]
    labelled = {line.split()[0]: line for line in lines}
    assert [label for label in labelled if label in LABELS] == LABELS
    return labelled


def details(error: str) -> list[str]:
    """The lines before those."""
    return error[: error.index("\nState ")].splitlines()


def test_satisfied_rule_promotes_release(copy: Path, first: str, calibrated: Run) -> None:
    """The same queries: the papers' rule is current, and a certified cut of 5 % is new."""
    code, printed, error = calibrated("--max-loss", "0.05")
    assert code == 0
    assert current_id(copy) == printed["release"]
    promotion = printed["promotion"]
    assert (promotion["current"], promotion["promoted"], promotion["reason"]) == (first, True, None)
    assert promotion["rule"] == "accuracy not lower by more than 0.1 and kept share not higher by more than 0.02"
    accuracy, kept = promotion["clauses"]
    assert (accuracy["quantity"], accuracy["not"], accuracy["margin"]) == ("accuracy", "lower", 0.1)
    assert (accuracy["finding"], accuracy["test"], accuracy["queries"]) == ("holds", "paired", [151, 151])
    assert accuracy["current"] - accuracy["new"] <= accuracy["worse_by_at_most"] <= 0.1
    assert kept["new"] < kept["current"]
    assert kept["new"] == pytest.approx(printed["manifest"]["metrics"]["heldout"]["kept_fraction"])
    assert kept["worse_by_at_most"] < 0
    line, widened, _ = details(error)[-3:]
    assert line.startswith("promotion: accuracy not lower by more than 0.1: holds, ")
    assert widened.startswith('warning: the margin of "kept share not higher" is 0.02 instead of 0.01: 151 queries ')
    assert (accuracy["widened"], kept["widened"]) == (False, True)
    assert history.read(copy).events[-1].rule == promotion["rule"]


def test_failed_rule_leaves_release_unpromoted(copy: Path, first: str, calibrated: Run) -> None:
    current = release_with(copy / first, 0, hits(0.2, 151, kept=1))
    promote(copy, current)
    code, printed, error = calibrated()
    assert code == 4
    assert current_id(copy) == current
    assert printed["release"] in release_ids(copy)
    assert printed["promotion"]["promoted"] is False
    assert [clause["finding"] for clause in printed["promotion"]["clauses"]] == ["holds", "worse"]
    last = error.splitlines()[-1]
    assert last.startswith(f"taugate: {printed['release']}: not promoted, because the promotion rule does not hold: ")
    assert '"kept share not higher by more than 0.01" (worse)' in last


def test_same_data_keeps_current_release(copy: Path, first: str, calibrated: Run) -> None:
    code, printed, error = calibrated(rule=["--max-accuracy-drop", "auto"])
    assert code == 0
    promotion = printed["promotion"]
    assert (promotion["promoted"], promotion["reason"], promotion["clauses"]) == (False, "same content", [])
    assert details(error)[-1] == "promotion: same content as the current release, nothing to promote"
    assert f"Not needed: {first} has the same content" in summary(error)["Promotion"]
    assert current_id(copy) == first


def test_impossible_threshold_skips_rule(copy: Path, first: str, calibrated: Run) -> None:
    code, printed, error = calibrated("--max-loss", "0.001", rule=["--max-kept-increase", "0.9"])
    assert code == 5, "the sample has too few documents to certify so small a loss"
    assert current_id(copy) == first
    assert (printed["promotion"]["promoted"], printed["promotion"]["reason"]) == (False, "no cut")
    assert "promotion:" not in error


def test_zero_holdout_prints_warning(calibrated: Run) -> None:
    code, printed, error = calibrated("--holdout", "0", rule=["--max-accuracy-drop", "0.5"])
    assert code == 0
    assert printed["promotion"]["clauses"][0]["queries"] == [151, 503]
    warning = f"warning: {printed['release']} was calibrated with --holdout 0, so its figures come from the queries"
    assert any(line.startswith(warning) for line in error.splitlines())


REFUSED = [
    (["--promote-if", "NDCG not lower"], "--promote-if: this sentence is no longer read; use --max-accuracy-drop and"),
    (["--promote-if", "accuracy not lower by more than 2"], "--max-accuracy-drop 2: give a share"),
    (["--promote-if", "accuracy not lower by more than x"], "--promote-if: this sentence is no longer read"),
    (["--max-accuracy-drop", "2"], "--max-accuracy-drop 2: give a share"),
    ([*RULE, "--no-promote"], "--max-accuracy-drop: --no-promote promotes nothing"),
    ([*RULE, "--force"], "--force: overrides --max-accuracy-drop"),
    ([*RULE, "--promote-if", "accuracy not lower"], "--promote-if: replaced by --max-accuracy-drop and"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_bad_rule_fails_before_work(
    options: list[str], message: str, sample: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The encoder is not looked for."""
    error = refusal(arguments(sample, tmp_path / "r", tmp_path / "none", *options), tmp_path / "r", capfd)
    assert error.startswith(message)


def test_incomparable_current_fails_before_work(
    copy: Path, first: str, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "read_objects", lambda *_: pytest.fail("read"))
    message = f"taugate: --k 7: the current release {first} has K = 5, and a rule compares only"
    assert refused("--k", "7")[-1].startswith(message)
    assert release_ids(copy) == [first]


def test_damaged_current_fails_before_work(copy: Path, first: str, refused: Refused) -> None:
    (copy / first / "index.faiss").write_bytes(b"")
    assert "index.faiss" in refused()[-1]
    assert release_ids(copy) == [first]


def test_unpromoted_release_is_kept(copy: Path, first: str, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another release is promoted while this one is calibrated."""
    other = clone(copy / first, 0, lambda manifest: manifest["policy"].update(k=6))
    monkeypatch.setattr("taugate.calibration.job.stages.check_sizes", lambda *_: promote(copy, other))
    error = refused()
    (name,) = set(release_ids(copy)) - {first, other}
    assert error[-2] == f"warning: {copy / name} is written but not promoted:"
    assert error[-1].startswith(f"taugate: {name}: has K = 5, and the current release {other} 6; a rule compares only")
    assert current_id(copy) == other


def test_help_has_promotion_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["calibrate", "--help-all"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("\npromotion:\n") < shown.rindex("--max-accuracy-drop X|auto") < shown.rindex("--no-promote")


def test_help_shows_nine_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["calibrate", "--help"]) == 0
    shown = capsys.readouterr().out
    options = re.findall(r"^  (?:-h, )?(--[a-z-]+)", shown, re.MULTILINE)
    assert len(options) == 9
    assert cli.main(["calibrate", "--help-all"]) == 0
    every = re.findall(r"^  (?:-h, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert set(options) < set(every)
    assert f"{len(every) - len(options)} more options" in shown


def test_rule_as_sentence_prints_warning(copy: Path, first: str, calibrated: Run) -> None:
    code, printed, error = calibrated(
        rule=["--promote-if", "Accuracy NOT lower and  kept share not higher by more than 0.1"]
    )
    assert code == 0
    assert (
        printed["promotion"]["rule"]
        == "accuracy not lower by more than 0.01 and kept share not higher by more than 0.1"
    )
    assert error.startswith("warning: --promote-if is deprecated and will be removed in version 0.4; use --max-acc")
