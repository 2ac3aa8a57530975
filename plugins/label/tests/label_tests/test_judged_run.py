"""`taugate judge --run`: results of another retriever are judged, and its scores calibrated."""

import json
from pathlib import Path

import pytest

from label_tests.pressed import press
from taugate.cli import main as cli
from tests.cli.test_run_command import run, twelve_queries, url

__all__ = ["url"]  # a fixture


def test_returned_texts_are_judged_and_calibrated(
    url: str,
    sample: Path,
    encoder: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    to, data = tmp_path / "run.jsonl", tmp_path / "data"
    queries = twelve_queries(sample, tmp_path)
    assert cli.main([*run(queries, to, url, encoder, "--depth", "6", "--texts", str(data)), "--json"]) == 0
    done = json.loads(capfd.readouterr().out)
    assert (done["sent"], done["earlier"], done["short"]) == (12, 0, 0)
    assert cli.main([*run(queries, to, url, encoder, "--depth", "6", "--texts", str(data)), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == done | {"sent": 0, "earlier": 12}
    judge = ["judge", str(data), "--run", str(to), "--n", "6", "--judge", "ana"]
    for _ in range(2):  # the second sample has the other six queries
        press(monkeypatch, "y" * 30)
        assert cli.main(judge) == 0
        judge = [*judge, "--more"]
    shown = capfd.readouterr().err
    assert "sample 1: 6 of 12 queries with the results of run:" in shown
    assert f"taugate calibrate-run {to} {data}/qrels/human.tsv --releases gates" in shown
    header, *rows = (data / "qrels" / "human.tsv").read_text(encoding="utf-8").splitlines()
    assert (header, len(rows)) == ("query-id\tcorpus-id\tscore", 60)
    calibrate = ["calibrate-run", str(to), str(data / "qrels" / "human.tsv"), "--releases", str(tmp_path / "gates")]
    assert cli.main([*calibrate, "--json"]) in {0, 3, 4}
    assert json.loads(capfd.readouterr().out)["manifest"]["calibration"]["reasons"] == ["few_queries"]


def test_judge_needs_releases_or_run(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["judge", str(sample)]) == 2
    assert "--releases: give the releases directory, or the run of another retriever" in capsys.readouterr().err
