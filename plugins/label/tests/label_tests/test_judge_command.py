"""`taugate judge`: what it prints and writes, and what it refuses."""

import json
import re
from itertools import cycle
from pathlib import Path

import pytest

from label_tests.pressed import press
from taugate.cli import main as cli
from taugate_label import page


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
