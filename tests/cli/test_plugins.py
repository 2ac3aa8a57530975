"""The core's commands work without plug-ins, and a command that is missing is one line that says what to install."""

import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from taugate import plugins
from taugate.cli import main as cli
from tests.sample_part import write_part


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
