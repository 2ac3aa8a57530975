"""Commands whose standard streams are closed, full, or read by nobody: no traceback, and a status that says so."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from taugate.cli.terminal.process import READER_GONE
from tests.every_command import run_every_command
from tests.unread import redirected, unread

COMMANDS = {
    "list": ["release", "list", "--releases", "RELEASES"],
    "list as JSON": ["release", "list", "--json", "--releases", "RELEASES"],
    "show": ["release", "show", "--releases", "RELEASES"],
    "verify": ["release", "verify", "--releases", "RELEASES"],
    "history": ["release", "history", "--releases", "RELEASES"],
    "settings": ["settings"],
    "settings as JSON": ["settings", "--json"],
    "completion": ["completion", "bash"],
    "key": ["key", "new", "--name", "a", "--scopes", "search"],
    "version": ["--version"],
}
SOME = ["list", "show", "version"]


@pytest.fixture(params=["buffered", "unbuffered"])
def unbuffered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a buffer, only the last write fails; without one, the first."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    if request.param == "unbuffered":
        monkeypatch.setenv("PYTHONUNBUFFERED", "1")


def taugate(name: str, releases: Path) -> list[str]:
    words = [str(releases) if word == "RELEASES" else word for word in COMMANDS[name]]
    return [sys.executable, "-m", "taugate", *words]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("unbuffered")
def test_closed_stdout_ends_with_141(name: str, releases: Path) -> None:
    done = run(unread("1", taugate(name, releases)))
    assert done.returncode == READER_GONE
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr
    assert "BrokenPipeError" not in done.stderr


def test_head_reader_gets_first_line(releases: Path) -> None:
    command = ["bash", "-c", 'set -o pipefail; "$@" | head -1', "bash", *taugate("show", releases)]
    done = run(command)
    assert done.returncode in {0, READER_GONE}, "0 if all was written before head left"
    assert len(done.stdout.splitlines()) == 1
    assert "Broken pipe" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("name", SOME)
def test_closed_stdout_and_stderr_end_with_141(name: str, releases: Path) -> None:
    assert run(unread("1,2", taugate(name, releases))).returncode == READER_GONE


@pytest.mark.parametrize("name", SOME)
def test_closed_stderr_changes_nothing(name: str, releases: Path) -> None:
    done = run(unread("2", taugate(name, releases)))
    assert done.returncode == 0
    assert done.stdout


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full"])
@pytest.mark.parametrize("name", ["list", "version"])
@pytest.mark.slow
def test_stream_closed_at_start_is_ignored(name: str, redirection: str, releases: Path) -> None:
    done = run(redirected(redirection, taugate(name, releases)))
    assert done.returncode == 0
    assert bool(done.stdout) == (">&-" not in redirection.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["show", "version"])
def test_full_disk_is_error(name: str, releases: Path) -> None:
    done = run(redirected(">/dev/full", taugate(name, releases)))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "taugate: [Errno 28] No space left on device")


def test_help_with_closed_stdout_is_quiet() -> None:
    done = run(unread("1", [sys.executable, "-m", "taugate", "calibrate", "--help"]))
    assert done.returncode in {0, READER_GONE}
    assert done.stderr == ""


def test_wrong_usage_keeps_exit_status(releases: Path) -> None:
    command = [sys.executable, "-m", "taugate", "release", "diff", "none", "--releases", str(releases)]
    assert run(unread("1,2", command)).returncode == 2
    assert run(unread("1,2", [*command[:3], "no-such-command"])).returncode == 2


def test_closed_stream_number_is_not_reused(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    command = ["-m", "taugate", "key", "new", "--name", "a", "--scopes", "search", "--file", str(keys)]
    assert run(redirected("<&- >&- 2>&-", [sys.executable, *command])).returncode == 0
    assert [entry["name"] for entry in json.loads(keys.read_bytes())] == ["a"], "nothing was printed into it"


@pytest.mark.slow
def test_long_command_completes_without_reader(sample: Path, encoder: Path, tmp_path: Path) -> None:
    words = ["calibrate", str(sample), "--releases", str(tmp_path / "releases"), "--encoder", str(encoder), "--json"]
    done = run(unread("1,2", [sys.executable, "-m", "taugate", *words]))
    assert done.returncode == READER_GONE
    assert (tmp_path / "releases" / "current").exists()


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("names", ["1", "1,2"])
def test_every_command_completes_without_reader(names: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    outcomes = list(run_every_command(tmp_path, lambda command: unread(names, command)))
    failed = [
        each for each in outcomes if each.status not in {each.run.status, READER_GONE} or "Traceback" in each.output
    ]
    assert [(each.run.command, each.status, each.output[-2000:]) for each in failed] == []


def test_interrupted_message_is_written_completely() -> None:
    script = (
        "import signal, sys; from taugate.cli.terminal.process import prepare_streams; prepare_streams();"
        "signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.2);"
        "sys.stderr.write('x' * 1_000_000 + 'end')"
    )
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        time.sleep(1)  # the pipe is full by then, and the signal has come in the middle of a write
        assert process.stderr is not None
        assert process.stderr.read() == b"x" * 1_000_000 + b"end"
