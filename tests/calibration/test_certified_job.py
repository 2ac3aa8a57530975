"""A certified cut through the command line: what the manifest says, what the exit code says, what is served."""

import json
from pathlib import Path

import numpy as np
import pytest

import taugate
from retrieval.release.catalog import current_id
from retrieval.release.layout import REPORT, content_digest
from retrieval.release.reader import load
from retrieval.retriever import Query


@pytest.fixture
def calibrate(sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    def run(*options: str, expected: int = 0) -> dict:
        command = ["calibrate", str(sample), "--releases", str(tmp_path / "r"), "--encoder", str(encoder), "--json"]
        assert taugate.main([*command, *options]) == expected
        return json.loads(capfd.readouterr().out)

    return run


def test_an_expected_loss(calibrate) -> None:
    found = calibrate("--max-loss", "0.05", "--guarantee", "expected-loss")
    policy = found["manifest"]["policy"]
    assert (policy["method"], policy["max_loss"], policy["psi"]) == ("risk-control", 0.05, None)
    (certificate,) = policy["certificates"]
    assert certificate["bound"] <= 0.05
    n = certificate["queries"]
    assert certificate["bound"] == pytest.approx((certificate["loss"] * n + 1) / (n + 1))
    assert n == policy["choice"]["certify_queries"]
    assert f"{n:,} queries" in policy["guarantee"]
    assert "5 %" in policy["guarantee"]
    parts = [policy["choice"][f"{part}_queries"] for part in ("fit", "choose", "certify")]
    assert sum(parts) == 503 - round(0.3 * 503)
    assert {other["method"] for other in found["manifest"]["alternatives"]} == {"bootstrap", "risk-control"}


def test_what_is_served_is_what_was_calibrated(calibrate, sample: Path) -> None:
    found = calibrate("--max-loss", "0.05", "--guarantee", "expected-loss", "--policy", "probability", "--holdout", "0")
    release = load(Path(found["path"]))
    tau = np.float32(found["manifest"]["policy"]["tau"])
    texts = [json.loads(line)["text"] for line in (sample / "queries.jsonl").read_text().splitlines()][:503]
    answers = release.retriever.search([Query(text, 5) for text in texts])
    kept = sum(len(answer.scores) for answer in answers) / sum(answer.considered for answer in answers)
    assert kept == pytest.approx(found["manifest"]["metrics"]["calibration"]["kept_fraction"], abs=1e-12)
    assert all((answer.relevance >= tau).all() for answer in answers)
    assert {answer.policy for answer in answers} == {"probability"}


def test_the_same_command_gives_the_same_digest(calibrate) -> None:
    first, second = (calibrate("--max-loss", "0.05", "--guarantee", "expected-loss")["manifest"] for _ in range(2))
    assert (first["parent"], second["parent"]) == (None, first["release_id"])
    assert content_digest(first) == content_digest(second)
    assert first["files"][REPORT] != second["files"][REPORT]  # the second one compares with the first


def test_too_little_data_is_said_in_numbers(
    sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["calibrate", str(sample), "--releases", str(tmp_path), "--encoder", str(encoder)]
    assert taugate.main([*command, "--max-loss", "0.01"]) == 3
    out, err = capfd.readouterr()
    assert "with 211 queries a loss of 1 % cannot be certified at 95 %; 299 are needed" in err
    assert "Label about 713 answerable queries" in err  # 299 · 503 / 211
    assert current_id(tmp_path) is None
    release = load(Path(out.strip()))
    assert (release.manifest.policy.kind, release.manifest.policy.tau) == ("none", None)
    (answer,) = release.retriever.search([Query("a house", 5)])
    assert (len(answer.scores), answer.calibrated, len(answer.relevance)) == (5, False, 5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--k", "504"], "--k 504"),
        (["--k", "5000"], "--k 5000: the corpus has only 503 documents"),
        (["--confidence", "1"], "--confidence 1.0"),
        (["--max-loss", "-0.1"], "--max-loss -0.1"),
        (["--max-empty", "1"], "--max-empty 1.0"),
        (["--holdout", "0.95", "--policy", "auto"], "--policy auto: needs at least 30"),
        (["--method", "bootstrap", "--max-loss", "0.1"], "--max-loss"),
    ],
)
def test_bad_settings_have_one_message_each(
    sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    folder = tmp_path / "r"
    command = ["calibrate", str(sample), "--releases", str(folder), "--encoder", str(encoder)]
    assert taugate.main([*command, *options]) == 2
    complaint = [line for line in capfd.readouterr().err.splitlines() if line.startswith("taugate:")]
    assert len(complaint) == 1
    assert said in complaint[0]
    assert not folder.exists()


def test_two_releases_beside_each_other(calibrate, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    old = calibrate()["release"]
    new = calibrate("--max-loss", "0.05", "--guarantee", "expected-loss")["release"]
    assert taugate.main(["release", "diff", "--releases", str(tmp_path / "r"), old, new]) == 0
    lines = capfd.readouterr().out
    assert "policy: method" in lines
    assert "bootstrap" in lines
    assert taugate.main(["release", "diff", "--releases", str(tmp_path / "r"), old, old]) == 0
    assert capfd.readouterr().out == "no difference\n"
    assert taugate.main(["release", "correlations", "--releases", str(tmp_path / "r")]) == 2
    assert "3 different encoders" in capfd.readouterr().err
