"""`taugate release promote ID --if RULE`: exit codes, what is said, and what the history says."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from taugate.calibration.comparison import decision
from taugate.calibration.comparison.decision import evaluate_rule
from taugate.cli import main as cli
from taugate.registry import history
from taugate.registry.catalog import current_id
from taugate.registry.promotion import promote
from taugate.registry.writer import read_private_key, sign
from taugate.release.layout import HISTORY, OUTCOMES
from tests.calibration.comparison.measured import hits, release_with
from tests.keys import write_keys
from tests.release.clones import clone, of_another_encoder, without_a_cut

RULE = ["--max-accuracy-drop", "auto", "--max-kept-increase", "0.05"]
RECORDED = "accuracy not lower by more than 0.01 and kept share not higher by more than 0.05"


@pytest.fixture
def promoted(copy: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The command on a release: exit code, stdout, stderr."""

    def run(name: str, rule: Sequence[str] = RULE, *options: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = cli.main(["release", "promote", name, "--releases", str(copy), *rule, *options])
        printed = capfd.readouterr()
        assert "Traceback" not in printed.err
        return code, printed.out, printed.err

    return run


@pytest.fixture
def before(copy: Path, first: str) -> str:
    """The current release: 90 % of 400 queries are hits, 3 of 5 results are kept."""
    name = release_with(copy / first, 0, hits(0.9, 400))
    promote(copy, name)
    return name


Run = Callable[..., tuple[int, str, str]]


def test_better_release_is_promoted(copy: Path, first: str, before: str, promoted: Run) -> None:
    name = release_with(copy / first, 1, hits(0.9, 400, kept=2))
    code, out, error = promoted(name)
    assert (code, out) == (0, f"* {name}\n")
    accuracy, kept = error.splitlines()
    assert accuracy == (
        "promotion: accuracy not lower by more than 0.01: holds, 0.9000 after 0.9000, lower by at most 0.0075 (95% "
        "confidence; 400 queries, paired); these queries cannot exclude a difference below 0.0075"
    )
    assert kept.startswith("promotion: kept share not higher by more than 0.05: holds, 0.4000 after 0.6000, lower by")
    assert current_id(copy) == name
    event = history.read(copy).events[-1]
    assert (event.action, event.release, event.previous, event.rule) == ("promote", name, before, RECORDED)


def test_worse_release_is_not_promoted(copy: Path, first: str, before: str, promoted: Run) -> None:
    name = release_with(copy / first, 1, hits(0.8, 400))
    events = len(history.read(copy).events)
    code, out, error = promoted(name)
    assert (code, out) == (4, "")
    accuracy, kept, last = error.splitlines()
    assert ": worse, 0.8000 after 0.9000, lower by at most 0.1" in accuracy
    assert ": holds, 0.6000 after 0.6000" in kept
    assert last.startswith(f"taugate: {name}: not promoted, because the promotion rule does not hold: ")
    assert f"taugate release diff {name}" in last
    assert current_id(copy) == before
    assert len(history.read(copy).events) == events
    promote(copy, name)  # by hand it may be


def test_default_margin_widens_with_warning(copy: Path, first: str, promoted: Run) -> None:
    promote(copy, release_with(copy / first, 0, hits(1, 100)))
    name = release_with(copy / first, 1, hits(1, 100, kept=2))
    code, _, error = promoted(name, ["--max-accuracy-drop", "auto"])
    assert code == 0
    warning, verdict = error.splitlines()
    assert warning == (
        'warning: the margin of "accuracy not lower" is 0.03 instead of 0.01: 100 queries cannot support a '
        "smaller one. Label more, or name a margin in the rule"
    )
    assert verdict.startswith("promotion: accuracy not lower by more than 0.03: holds, ")
    assert history.read(copy).events[-1].rule == "accuracy not lower by more than 0.03"


def test_first_release_needs_no_comparison(copy: Path, first: str, promoted: Run) -> None:
    (copy / "current").unlink()
    code, out, error = promoted(first, ["--max-accuracy-drop", "auto"])
    assert (code, out) == (0, f"* {first}\n")
    assert error == "promotion: no release is current, so there is nothing to compare with\n"
    assert history.read(copy).events[-1].rule == "accuracy not lower by more than 0.01"


def test_same_content_moves_no_pointer(copy: Path, first: str, promoted: Run) -> None:
    name = clone(copy / first, 1)
    assert name[-12:] == first[-12:]
    for release in (name, first):
        code, out, error = promoted(release)
        assert (code, out) == (0, f"* {first}\n")
        assert error == "promotion: same content as the current release, nothing to promote\n"
    assert current_id(copy) == first


def test_release_without_threshold_is_never_promoted(copy: Path, first: str, promoted: Run) -> None:
    name = clone(copy / first, 1, without_a_cut)
    for rule in (RULE, ["--max-kept-increase", "0.9"]):
        code, out, error = promoted(name, rule)
        assert (code, out) == (2, "")
        assert error.startswith(
            f"taugate: {name}: its policy is none, which keeps every result, so no rule can promote it"
        )
    assert promoted(name, RULE, "--force")[:2] == (2, "")
    assert current_id(copy) == first


def test_rule_does_not_allow_new_encoder(copy: Path, first: str, before: str, promoted: Run) -> None:
    name = release_with(copy / first, 1, hits(0.9, 400, kept=2), of_another_encoder)
    code, out, error = promoted(name)
    assert (code, out) == (2, "")
    assert "to promote it anyway, give --new-encoder" in error
    assert current_id(copy) == before
    assert promoted(name, RULE, "--new-encoder")[0] == 0
    event = history.read(copy).events[-1]
    assert (event.forced, event.rule) == (("new encoder",), RECORDED)


def test_rule_as_other_sentence_is_input_error(copy: Path, first: str, promoted: Run) -> None:
    code, out, error = promoted(clone(copy / first, 1), ["--if", "acuracy not lower"])
    assert (code, out) == (2, "")
    assert error == (
        "taugate: --if: this sentence is no longer read; use --max-accuracy-drop and --max-kept-increase\n"
    )
    assert current_id(copy) == first


def test_release_without_outcomes_is_error(copy: Path, first: str, promoted: Run) -> None:
    def older(manifest: dict) -> None:
        del manifest["files"][OUTCOMES]

    name = clone(copy / first, 1, older)
    (copy / name / OUTCOMES).unlink()
    code, _, error = promoted(name)
    assert code == 2
    assert "an earlier version wrote it, without what each query got" in error
    promote(copy, name)
    code, _, error = promoted(first)
    assert code == 2
    assert name in error


def test_trusted_keys_require_signature(
    copy: Path, first: str, before: str, promoted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything of the release is read; what is current was trusted once."""
    private, public = write_keys(tmp_path)
    monkeypatch.setenv("TAUGATE_TRUSTED_KEYS", str(public))
    name = release_with(copy / first, 1, hits(0.9, 400, kept=2))
    code, _, error = promoted(name)
    assert code == 2
    assert "the release is not signed" in error
    assert current_id(copy) == before
    sign(copy / name, read_private_key(private))
    assert promoted(name)[0] == 0


def test_concurrent_promotion_is_not_overridden(
    copy: Path, first: str, before: str, promoted: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, other = (release_with(copy / first, minute, hits(0.9, 400, kept=2 + minute)) for minute in (-1, 1))
    judge = evaluate_rule

    def judged(*arguments: object) -> object:
        promote(copy, other)
        return judge(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(decision, "evaluate_rule", judged)
    code, out, error = promoted(name)
    assert (code, out) == (2, "")
    assert f"another command made {other} current while {name} was compared with {before}" in error
    assert current_id(copy) == other


def test_history_shows_promotion_rule(
    copy: Path, first: str, before: str, promoted: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert b"rule" not in (copy / HISTORY).read_bytes(), "of those that were asked nothing"
    name = release_with(
        copy / first, 1, lambda outcomes: replace(hits(0.9, 400)(outcomes), kept=hits(0.9, 400, 2)(outcomes).kept)
    )
    assert promoted(name)[0] == 0
    capfd.readouterr()
    assert cli.main(["release", "history", "--releases", str(copy)]) == 0
    shown = capfd.readouterr().out.splitlines()
    assert [line.endswith(f"  as {RECORDED}") for line in shown] == [False, False, True]
    assert [event.rule for event in history.read(copy).events] == [None, None, RECORDED]
