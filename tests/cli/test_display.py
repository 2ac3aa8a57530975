"""Progress: a line that is redrawn on a terminal, and a line now and then in a log."""

import io
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from rich.console import Console

from taugate.calibration.progress import Job, JobCancelled, Task
from taugate.cli.terminal import display as module
from taugate.cli.terminal.display import ProgressDisplay, progress_line, task_line
from tests.calibration.commands import arguments

LINES = [
    (Task("reading the data set"), 75.0, "reading the data set: 01:15 so far"),
    (Task("encoding documents", 57638, 3200, 0), 80.0, "encoding documents: 3,200 of 57,638 (6 %), 40.0/s, 22:40 left"),
    (Task("encoding documents", 1000, 600, 500), 10.0, "encoding documents: 600 of 1,000 (60 %), 10.0/s, 00:40 left"),
    (Task("encoding documents", 1000, 500, 500), 10.0, "encoding documents: 500 of 1,000 (50 %), 00:10 so far"),
    (Task("encoding queries", 0), 10.0, "encoding queries: 00:10 so far"),
]


@pytest.mark.parametrize(("task", "seconds", "line"), LINES)
def test_log_line_shows_progress(task: Task, seconds: float, line: str) -> None:
    assert progress_line(task, seconds) == line


def test_drawn_line_fits_terminal() -> None:
    console = Console(width=79, file=io.StringIO(), force_terminal=True, color_system=None)
    task = Task("encoding documents", 1000, 600, 500, began=time.perf_counter() - 10.0)
    console.print(task_line(task))
    console.print(task_line(Task("x" * 200, began=time.perf_counter() - 3.0)))
    bar, other = str(console.file.getvalue()).splitlines()  # type: ignore[attr-defined]  # it is a StringIO
    assert len(bar.rstrip()) <= len(other) == 79
    assert bar.rstrip().endswith(" encoding documents: 600 of 1,000 (60 %), 10.0/s, 00:40 left")
    assert other == f" {'x' * 77}…"


def test_job_returns_innermost_task() -> None:
    job = Job()
    with job.stage("gate"):
        assert job.current.name == "trying cheaper ways to search"
        with job.task("encoding queries", 7) as task:
            task.advance(3)
            assert (job.current.name, job.current.done, job.current.total) == ("encoding queries", 3, 7)
        assert job.current.name == "trying cheaper ways to search"
    assert job.current.name == "working"


def test_cancelled_job_stops_at_next_task() -> None:
    job = Job()
    with job.task("encoding queries", 7) as task, pytest.raises(JobCancelled):
        job.cancel()
        task.advance()
    assert task.done == 0
    with pytest.raises(JobCancelled), job.stage("gate"):
        raise AssertionError("a cancelled job began another stage")
    assert job.current.name == "working"


def test_log_prints_line_regularly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "_SILENCE_SECONDS", 0.5)
    with ProgressDisplay() as job, job.task("counting", 100) as task:
        task.advance(50)
        time.sleep(1.3)
        job.report("a line")
        time.sleep(0.1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "a line"
    assert len(lines) in {2, 3}
    assert all(line.startswith("counting: 50 of 100 (50 %), ") for line in lines[:-1])


def test_steps_have_a_line_each_with_their_time(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay(steps=True, verbose=False) as job:
        with job.stage("read"):
            job.report("a note")
        job.describe("read", "Read 3 documents")
        for stage in ("search", "model", "promote"):
            with job.stage(stage):
                job.report(f"warning: of {stage}")
    lines = [re.sub(r"\d\.\d", "0.0", line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "Read 3 documents in 0.0 s",
        "warning: of search",
        "warning: of model",
        "Measured all queries and chose the threshold in 0.0 s",
        "warning: of promote",
    ]


@pytest.mark.slow
def test_terminal_line_is_redrawn_and_cleared(sample: Path, encoder: Path, tmp_path: Path) -> None:
    """Less what is redrawn, a terminal shows what a log has, with labels in bold."""
    leader, follower = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    words = [sys.executable, "-m", "taugate", *arguments(sample, tmp_path / "releases", encoder)]
    with subprocess.Popen(
        words, env=environment | {"TERM": "xterm"}, stderr=follower, stdout=subprocess.DEVNULL
    ) as process:
        os.close(follower)
        seen = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            seen += part
        assert process.wait(60) == 0
    os.close(leader)
    text = seen.decode()
    assert text.count("\x1b[2K") > 5  # a step that takes a tenth of a second has a line for its time
    left = [line.split("\x1b[2K")[-1].rstrip("\r") for line in text.split("\n")]
    assert not [line for line in left if "so far" in line or "/s, " in line]
    bold = [line for line in left if line.startswith("\x1b[1m") and line.removeprefix("\x1b[1m")[:1].strip()]
    labels = [re.sub(r"\x1b\[[0-9;]*m", "", line).split()[0] for line in bold]
    assert labels == ["State", "Certified", "Checked", "Cut", "Metrics", "Measured", "Open", "Report", "Next"]
    steps = [line.split()[0] for line in left if re.search(r" in \d+\.\d s$", line)]
    assert steps == ["Read", "Prepared", "Encoded", "Tried", "Measured", "Wrote"]


def test_command_of_job_hides_passwords() -> None:
    words = ["calibrate", "my data", "--engine", "postgresql://user:secret@host/db"]
    with click.Context(click.Command("calibrate"), obj=words), ProgressDisplay() as job:
        assert job.command == "taugate calibrate 'my data' --engine 'postgresql://…@host/db'"
