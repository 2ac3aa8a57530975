"""`taugate judge`: what it prints and writes, and what it refuses."""

import json
import re
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from label_tests.pressed import press
from taugate.cli import main as cli
from taugate_label import page
from taugate_label.verdicts import Vote, agreement, cohen_kappa
from tests.cli.test_run_command import run, twelve_queries, url


def test_json_output_counts_judgements(
    command: list[str], data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    press(monkeypatch, "ynnnn" + "yxn")
    assert cli.main([*command, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["judged"], printed["answerable"], printed["unanswerable"]) == (1, 1, 0)
    assert (printed["queries"], printed["population"], printed["judge"]) == (4, 503, "ana")
    assert (printed["agreements"], printed["disagreements"]) == ([], [])
    journal = data / "judgements" / "human" / "ana.jsonl"
    assert len(journal.read_text(encoding="utf-8").splitlines()) == 7


def test_stopped_judge_is_told_how_to_resume(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    press(monkeypatch, "ynnnnsq")
    assert cli.main([*command, "--web"]) == 0
    error = capsys.readouterr().err
    assert "warning: --web is deprecated and will be removed in version 0.4; " in error
    assert "1 of 4 queries judged, 1 of them with a relevant passage; they represent 503 queries" in error
    assert "Run the same command to resume." in error


def test_two_judges_report_agreement(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    press(monkeypatch, cycle("yn"))
    assert cli.main(command) == 0
    assert "Next: taugate calibrate" in capsys.readouterr().err
    press(monkeypatch, cycle("yny"))
    assert cli.main([*command, "--judge", "ben"]) == 0
    error = capsys.readouterr().err
    assert re.search(r"ana and ben agree on \d+ of 20 results; Cohen's kappa is -?\d\.\d\d \(95 % interval", error)
    assert re.search(r"\n\d+ results are disputed; until another judge decides with --disputed", error)
    assert re.search(r"\n  \S+ for “.+”: relevant to (ana|ben), not to (ana|ben)\n", error)
    press(monkeypatch, cycle("n"))
    assert cli.main([*command, "--judge", "cleo", "--disputed"]) == 0
    error = capsys.readouterr().err
    assert "results are disputed" not in error
    assert "ana and ben agree on" in error
    assert "cleo agree" not in error  # of results that were chosen for being disputed
    assert cli.main([*command, "--judge", "cleo", "--disputed"]) == 0
    assert cli.main([*command, "--judge", "dora", "--disputed"]) == 2
    assert "no result of sample 1 is disputed; leave --disputed out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--judge", "../ana"], "--judge '../ana': use up to 64 letters, digits, dots, hyphens and underscores"),
        (["--split", ""], "--split '': use up to 64 letters"),
        (["--split", "traffic"], "--split traffic: another command writes this split"),
        (["--n", "0"], "--n 0: give a number of queries, 1 or more"),
        (["--log", "nowhere.log"], "nowhere.log: no such file"),
        (["--log", __file__], f"taugate: {__file__}:1: not JSON"),
        (["--release", "2099"], "holds no release '2099'"),
    ],
)
def test_bad_input_gives_one_sentence(
    command: list[str], data: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert cli.main([*command, *words]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    (line,) = (line for line in error.splitlines() if " is deprecated and " not in line)
    assert line.startswith("taugate: ")
    assert message in line
    assert not (data / "judgements").exists()


@pytest.mark.parametrize(
    ("variables", "opens"), [(["DISPLAY"], True), ([], False), (["DISPLAY", "SSH_CONNECTION"], False)]
)
def test_page_opens_only_where_browser_has_windows(
    variables: list[str], opens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name in variables:
        monkeypatch.setenv(name, "1")
    assert page.open_in_browser("http://127.0.0.1:1/") is opens
    assert opened == ["http://127.0.0.1:1/"] * opens


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


def votes(yes_yes: int, yes_no: int, no_yes: int, no_no: int) -> list[Vote]:
    cells = [(True, True)] * yes_yes + [(True, False)] * yes_no + [(False, True)] * no_yes + [(False, False)] * no_no
    return [Vote(number, one, other) for number, (one, other) in enumerate(cells)]


def test_kappa_matches_a_manual_calculation() -> None:
    # 35 of 50 agree: p₀ = .7. The first says yes to 25, the second to 30: pₑ = .5·.6 + .5·.4 = .5. κ = .2 / .5.
    assert cohen_kappa(votes(20, 5, 10, 15)) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("table", "expected"), [((10, 0, 0, 10), 1.0), ((5, 5, 5, 5), 0.0), ((0, 10, 10, 0), -1.0), ((9, 0, 0, 0), None)]
)
def test_kappa_reaches_its_extremes(table: tuple[int, ...], expected: float | None) -> None:
    assert cohen_kappa(votes(*table)) == (expected if expected is None else pytest.approx(expected))
    assert cohen_kappa([]) is None


def test_judges_in_full_agreement_have_no_interval() -> None:
    results = agreement(votes(10, 0, 0, 10))
    assert (results.results, results.equal, results.kappa, results.lower, results.upper) == (20, 20, 1.0, None, None)


def test_kappa_interval_is_jackknife_by_query() -> None:
    rows = [Vote(row % 7, row % 3 == 0, row % 4 == 0 or row % 3 == 0) for row in range(42)]
    without = [cohen_kappa([item for item in rows if item.query != query]) for query in range(7)]
    error = np.sqrt(6 / 7 * sum((item - np.mean(without)) ** 2 for item in without))
    result = agreement(rows)
    margin = 1.959964 * error
    assert (result.lower, result.upper) == pytest.approx((result.kappa - margin, result.kappa + margin))


@pytest.mark.slow
def test_kappa_interval_covers_dependent_results() -> None:
    """Two judges who each err on 15 % of the results, and together on 10 % of the queries."""
    rng = np.random.default_rng(3)

    def draw(queries: int) -> list[Vote]:
        truth = rng.random((queries, 5)) < 0.3
        misread = rng.random((queries, 1)) < 0.1  # by the first judge, as a whole
        one = truth ^ (rng.random((queries, 5)) < 0.15) ^ misread
        other = truth ^ (rng.random((queries, 5)) < 0.15)
        return [Vote(query, bool(one[query, k]), bool(other[query, k])) for query in range(queries) for k in range(5)]

    true = cohen_kappa(draw(100_000))
    results = [agreement(draw(50)) for _ in range(300)]
    covered = np.mean([item.lower <= true <= item.upper for item in results])
    assert 0.91 <= covered <= 0.985
