"""Help, suggestions for typos, completion, and the extra that is named where a package is missing."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from taugate import plugins
from taugate.cli import main as cli
from taugate.cli.calibrate import command
from taugate.cli.main import COMMANDS
from tests.fork_server import forked
from tests.sample_part import write_part

TYPOS = [
    (["calibarte", "data"], "(Did you mean one of: 'calibrate', 'calibrate-run', 'recalibrate'?)"),
    (["release", "lst", "--releases", "r"], "Did you mean 'list'?"),
    (["calibrate", "data", "--relases", "r"], "(Did you mean one of: '--labels', '--refuse', '--releases'?)"),
    (["calibrate", "data", "--releases", "r", "--hold-out=0.1"], "Did you mean '--holdout'?"),
    (["calibrate", "data", "--releases", "r", "--method", "bootstrp"], "is not one of 'bootstrap',"),
    (["--verison"], "Did you mean '--version'?"),
]


@pytest.mark.parametrize(("words", "says"), TYPOS)
def test_typo_suggests_closest_name(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("taugate")
    assert says in line


def test_distant_name_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--colour"]) == 2
    assert capsys.readouterr().err == "taugate serve: No such option '--colour'.\n"


def test_abbreviated_option_is_accepted() -> None:
    parsed = command.make_context("calibrate", ["data", "--rel", "r", "--boot=7", "--", "--k"], resilient_parsing=True)
    assert (parsed.params["bootstraps"], parsed.params["k"]) == (7, None)


def modules(*words: str) -> set[str]:
    """The modules that `taugate` imports for a command line."""
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); import taugate.__main__"
    done = subprocess.run(
        [sys.executable, "-c", f"{code} as command; command.main()", *words], capture_output=True, text=True, check=True
    )
    return {*done.stderr.split()}


def test_only_requested_command_is_loaded() -> None:
    assert not {"numpy", "pydantic", "taugate.cli.calibrate"} & modules("--help")
    loaded = modules("calibrate", "--help")
    others = {f"taugate.cli.{name}" for name in COMMANDS if name != "calibrate"}
    assert "taugate.cli.calibrate" in loaded
    assert not others & loaded
    assert "taugate.service.settings" not in loaded
    assert not {"torch", "scipy", "sklearn"} & loaded


@pytest.mark.parametrize("words", [["--help"], ["calibrate", "--help"], ["release", "--help"]])
@pytest.mark.slow
def test_help_is_coloured_only_on_request(words: list[str]) -> None:
    def shown(**variables: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
        command = forked(*words)
        return subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=True).stdout

    plain = shown()
    assert "\x1b[" not in plain
    coloured = shown(FORCE_COLOR="1", TERM="xterm")
    assert "\x1b[" in coloured
    assert "\x1b[3" not in shown(FORCE_COLOR="1", NO_COLOR="1", TERM="xterm")
    assert [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()] == [
        line.rstrip() for line in plain.splitlines()
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_valid(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_TAUGATE_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


def test_bash_completes_command_and_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)

    def completed(*words: str) -> list[str]:
        line = " ".join(words)
        code = (
            f"source {tmp_path}/script; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
            f'_taugate_completion {Path(sys.executable).with_name("taugate")}; echo "${{COMPREPLY[@]}}"'
        )
        return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert completed("taugate", "cal") == ["calibrate", "calibrate-run"]
    assert completed("taugate", "calibrate", "--max-lo") == ["--max-loss"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["calibrate", "data", "--releases", "r"], "sklearn"),
        (["calibrate", "data", "--releases", "r"], "scipy"),
        (["calibrate", "data", "--releases", "r"], "jinja2"),
        (["quickstart", "--no-serve"], "sklearn"),
    ],
)
def test_missing_package_names_extra(words: list[str], missing: str, sample: Path, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from taugate.__main__ import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *(str(sample) if word == "data" else word for word in words)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    package = {"sklearn": "scikit-learn"}.get(missing, missing)
    assert done.stderr.splitlines()[-1] == (
        f"taugate: {package} is not installed, which this command needs: pip install 'taugate[calibration]'"
    )
    assert len(done.stderr.splitlines()) == 1
    assert [*tmp_path.iterdir()] == []


def test_module_without_extra_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(shell: str) -> int:
        raise ModuleNotFoundError("No module named 'taugate.nothing'", name="taugate.nothing")

    monkeypatch.setattr("taugate.cli.completion.command.callback", run)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["completion", "bash"])


def test_windows_gets_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from taugate.__main__ import main

    monkeypatch.setattr("sys.platform", "win32")
    assert main() == 2
    assert capsys.readouterr().err == "taugate: Taugate runs on Linux and macOS; on Windows, use WSL or a container\n"


@pytest.fixture(autouse=True)
def _without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {point.value.split(".")[0].split(":")[0] for point in entry_points(group="taugate.commands")}
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(plugins, "entry_points", lambda group: ())


@pytest.mark.parametrize(
    ("words", "missing", "plugin"),
    [
        (["import"], "import", "import"),
        (["quickstart", "files"], "import", "import"),
        (["judge"], "judge", "label"),
        (["queries", "--help"], "queries", "label"),
        (["traffic"], "traffic", "label"),
        (["adapt"], "adapt", "adapt"),
        (["encode"], "encode", "engines"),
    ],
)
def test_missing_command_says_what_to_install(
    words: list[str],
    missing: str,
    plugin: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    assert cli.main(words) == 2
    assert capsys.readouterr().err == (
        f"taugate: {missing} is not installed: it is in the plug-in taugate-{plugin} (in a clone: pip install "
        f"plugins/{plugin})\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["files"]


def test_core_calibrates_and_recalibrates_without_plugins(
    sample: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, at = write_part(sample, tmp_path / "part", 200), ["--releases", str(tmp_path / "releases")]
    assert cli.main(["calibrate", str(data), *at, "--encoder", str(encoder)]) == 0
    assert cli.main(["recalibrate", str(data), *at]) == 0
    capsys.readouterr()
    assert cli.main(["release", "list", *at]) == 0
    assert capsys.readouterr().out.startswith("* ")
