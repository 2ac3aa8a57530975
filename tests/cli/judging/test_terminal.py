"""`taugate judge` in a terminal: one key a judgement, nothing lost when it is stopped, killed or interrupted."""

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

from taugate.cli import main as cli
from tests.cli.judging.conftest import Start

KEYS = b"[q] stop"


class Terminal:
    """A terminal in which the command runs; nothing is typed before it is asked for."""

    def __init__(self, start: Start, *words: str) -> None:
        self.side, inner = pty.openpty()
        termios.tcsetwinsize(inner, (24, 80))
        self.process = start(*words, stdin=inner, stdout=inner, stderr=inner)
        self._inner = inner
        self.shown = b""

    def wait_for(self, text: bytes) -> str:
        """Read until the text is shown; returns what is shown since the screen was cleared."""
        deadline = time.monotonic() + 60
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self.side], [], [], 0.2)[0]:
                self.shown += os.read(self.side, 65536)
        before, _, self.shown = self.shown.partition(text)
        return before.rpartition(b"\x1b[2J\x1b[H")[2].decode()

    def press(self, key: str) -> str:
        """Press a key where one is asked for; returns the screen that is shown then."""
        os.write(self.side, key.encode())
        return self.wait_for(KEYS)

    def end(self) -> tuple[int, str]:
        """Wait for the end; returns the exit code, and what was shown last."""
        status = self.process.wait(timeout=30)
        assert termios.tcgetattr(self._inner)[3] & termios.ECHO  # the terminal is as it was
        while select.select([self.side], [], [], 0.1)[0]:
            self.shown += os.read(self.side, 65536)
        os.close(self.side)
        os.close(self._inner)
        return status, self.shown.decode().replace("\r\n", "\n")


def journal(data: Path) -> list[dict[str, object]]:
    path = data / "judgements" / "human" / "ana.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def judged(data: Path) -> set[str]:
    qrels = data / "qrels" / "human.tsv"
    return {line.split("\t")[0] for line in qrels.read_text(encoding="utf-8").splitlines()[1:]}


def test_key_press_stores_judgement(start: Start, data: Path) -> None:
    terminal = Terminal(start)
    first = terminal.wait_for(KEYS)
    assert "Result 1 of 5:" in first
    assert "0 of 4 queries, 0 judgements" in first
    assert not re.search(r"0\.\d\d|score|threshold|kept", first)  # nothing sways the judge
    assert "Relevant: the passage answers the query" in first
    assert first.startswith("░" * 20)
    assert "\x1b[1;4m" in first  # bold and underlined
    second = terminal.press("y")
    assert "Result 2 of 5:" in second
    assert "0 of 4 queries, 1 judgement" in second
    assert "there is nothing to undo" not in terminal.press("u")
    assert "there is nothing to undo" in terminal.press("u")
    assert "Result 1 of 5:" in terminal.press("x")  # another key does nothing
    for place in range(5):
        screen = terminal.press("y" if place == 0 else "n")
    assert "1 of 4 queries, 5 judgements" in screen
    assert screen.startswith("█" * 5 + "░" * 15)
    assert "Result 1 of 5:" in terminal.press("s")
    os.write(terminal.side, b"q")
    status, last = terminal.end()
    assert status == 0
    assert "1 of 4 queries judged, 1 of them with a relevant passage; they represent 503 queries" in last
    assert "Run the same command to resume." in last
    assert [each["action"] for each in journal(data)] == ["judge", "undo", *["judge"] * 5, "skip"]
    assert judged(data) == {journal(data)[0]["query"]}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_process_keeps_judgements(start: Start, data: Path, number: signal.Signals) -> None:
    terminal = Terminal(start)
    terminal.wait_for(KEYS)
    for _ in range(7):
        screen = terminal.press("y")
    terminal.process.send_signal(number)
    if number == signal.SIGKILL:
        assert terminal.process.wait(timeout=30) == -signal.SIGKILL
    else:
        status, last = terminal.end()
        assert status == 130
        assert last.endswith("taugate: interrupted\n")
    assert len(journal(data)) == 7
    assert judged(data) == {journal(data)[0]["query"]}
    again = Terminal(start)
    assert again.wait_for(KEYS) == screen
    os.write(again.side, b"\x04")  # Ctrl-D
    assert again.end()[0] == 0


def test_held_key_judges_one_result(start: Start, data: Path) -> None:
    terminal = Terminal(start)
    terminal.wait_for(KEYS)
    assert "0 of 4 queries, 1 judgement" in terminal.press("n" * 20)
    os.write(terminal.side, b"q")
    assert terminal.end()[0] == 0
    assert len(journal(data)) == 1


def test_line_without_terminal_is_key(
    command: list[str], data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" + "n\n" * 4 + "Y\n\nn\n"))
    assert cli.main([*command, "--json"]) == 0
    out, error = capsys.readouterr()
    printed = json.loads(out)
    assert (printed["judged"], printed["answerable"], printed["unanswerable"]) == (1, 1, 0)
    assert (printed["queries"], printed["population"], printed["judge"]) == (4, 503, "ana")
    assert (printed["agreements"], printed["disagreements"]) == ([], [])
    assert "\x1b" not in error
    assert len(journal(data)) == 7


def test_two_judges_report_agreement(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\nn\n" * 50))
    assert cli.main(command) == 0
    assert "Next: taugate calibrate" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("y\nn\ny\n" * 50))
    assert cli.main([*command, "--judge", "ben"]) == 0
    error = capsys.readouterr().err
    assert re.search(r"ana and ben agree on \d+ of 20 results; Cohen's kappa is -?\d\.\d\d \(95 % interval", error)
    assert re.search(r"\n\d+ results are disputed; until another judge decides with --disputed", error)
    assert re.search(r"\n  \S+ for “.+”: relevant to (ana|ben), not to (ana|ben)\n", error)
    count = int(re.findall(r"(\d+) results are disputed", error)[0])
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n" * 50))
    assert cli.main([*command, "--judge", "cleo", "--disputed"]) == 0
    error = capsys.readouterr().err
    assert f"0 of {count} disputed results, 0 judgements" in error
    assert f"{count - 1} of {count} disputed results, {count - 1} judgements" in error
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
        (["--release", "2099"], "holds no release '2099'"),
    ],
)
def test_bad_input_gives_one_sentence(
    command: list[str], data: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert cli.main([*command, *words]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("taugate: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (data / "judgements").exists()


def test_log_with_foreign_lines_is_read(
    command: list[str], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "queries.log"
    log.write_text("GET / HTTP/1.1\n", encoding="utf-8")
    assert cli.main([*command, "--log", str(log)]) == 2
    assert f"taugate: {log}:1: not JSON" in capsys.readouterr().err
    assert not (data / "judgements").exists()


def test_second_process_of_judge_fails(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    first = Terminal(start)
    first.wait_for(KEYS)
    second = start(stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = second.communicate(timeout=30)[1].decode()
    assert second.returncode == 2
    assert "ana is judging in another process; end it, or give another name with --judge" in error
    os.write(first.side, b"q")
    assert first.end()[0] == 0
