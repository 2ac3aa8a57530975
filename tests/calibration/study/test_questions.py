"""The questions that a release lists: from their scores, everybody counts what the calibration counted."""

from pathlib import Path

import numpy as np
import orjson
import pytest

from taugate.cli import main as cli
from taugate.release import queries
from taugate.release.layout import OUTCOMES, QUESTIONS
from taugate.release.manifest import Manifest
from taugate.release.queries import CalibrationQuestion, Outcomes
from taugate.release.verify import verify_searchable


def tau_of(manifest: Manifest) -> np.float32:
    """Return τ in force."""
    assert manifest.policy.threshold is not None
    return manifest.policy.threshold


def _kept(question: CalibrationQuestion, manifest: Manifest) -> int:
    """Count the results that a user gets for a question, as documented in the fields of CalibrationQuestion."""
    _, rho = manifest.answer_threshold or (None, None)
    if rho is not None and question.refusal is not None and np.float32(question.refusal) < np.float32(rho):
        return 0
    passing = np.asarray(question.values, dtype=np.float32) >= tau_of(manifest)
    return int((passing | (np.arange(len(passing)) == 0)).sum() if rho is not None else passing.sum())


@pytest.mark.parametrize("options", [[], ["--max-loss", "0.05", "--policy", "relative", "--refuse", "off"],
                                     ["--max-loss", "0.05", "--policy", "probability"]])  # fmt: skip
def test_listed_questions_have_outcomes_of_calibration(
    sample: Path, encoder: Path, tmp_path: Path, options: list[str]
) -> None:
    assert cli.main(["calibrate", str(sample), "--releases", str(tmp_path), "--encoder", str(encoder), *options]) == 0
    (release,) = tmp_path.glob("*Z-*")
    manifest = verify_searchable(release)
    listed = [
        CalibrationQuestion(**orjson.loads(line)) for line in queries.read_calibration_questions(release / QUESTIONS)
    ]
    assert [each.kind for each in listed].count("answerable") == manifest.data.answerable
    heldout = [each for each in listed if each.heldout]
    outcomes = Outcomes.load(release / OUTCOMES, manifest.policy.k)
    assert [each.rank is not None for each in heldout] == outcomes.hit.tolist()
    assert [_kept(each, manifest) for each in heldout] == outcomes.kept.tolist()
    _, rho = manifest.answer_threshold or (None, None)
    right = [each.outcome(manifest.policy.tau, rho) == "kept" for each in heldout]
    assert right == outcomes.hit_kept.tolist()
    assert len(listed) - manifest.data.answerable == 150  # off-topic questions in English that state


def test_rho_is_used_as_given(sample: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["calibrate", str(sample), "--releases", str(tmp_path), "--encoder", str(encoder)]
    assert cli.main([*given, "--policy", "similarity", "--tau", "0.4", "--refuse", "0.3", "--json"]) == 0
    manifest = orjson.loads(capsys.readouterr().out)["manifest"]
    assert (manifest["policy"]["tau"], manifest["refusal"]["rho"]) == (0.4, 0.3)
    assert manifest["refusal"]["evidence"]["off_topic"]["queries"] == 150


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "give --tau and --policy as well"),
        (["--max-loss", "0.02"], "give --tau and --policy as well"),
        (["--policy", "similarity", "--tau", "0.4", "--no-refusal"], "--refuse 0.3 is given as well"),
        (["--policy", "similarity", "--tau", "0.4", "--refuse", "nan"], "--refuse"),
    ],
)
def test_rho_beside_other_rules_is_refused(
    sample: Path, tmp_path: Path, options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["calibrate", str(sample), "--releases", str(tmp_path), "--refuse", "0.3", *options]) == 2
    assert reason in capsys.readouterr().err
