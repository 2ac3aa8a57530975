"""Plug-ins are found by entry points; one that is missing or broken is named, and stops nothing else."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.errors import InputError
from taugate.plugins import load_all, load_one
from tests.calibration.commands import failure

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution `extra-plugin` that has one module, `extra_plugin`, and one entry point."""

    def install(entry_point: str, module: str) -> None:
        group, _, point = entry_point.partition(" ")
        metadata = tmp_path / "extra_plugin-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Name: extra-plugin\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[taugate.{group}]\n{point}\n")
        (tmp_path / "extra_plugin.py").write_text(module)
        monkeypatch.syspath_prepend(tmp_path)

    return install


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of one test is not that of the next."""
    monkeypatch.delitem(sys.modules, "extra_plugin", raising=False)


def test_broken_plugin_is_named(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    install("pages one = extra_plugin:page", "raise RuntimeError('no licence')")
    message = "the plug-in extra-plugin cannot be imported: no licence"
    with pytest.raises(InputError, match=f"^{message}; install it again, or remove it$"):
        load_one("pages", "one")
    with caplog.at_level(logging.WARNING):
        assert "one" not in dict(load_all("pages"))
    assert message in caplog.text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["calibrate", "DATA", "--releases", "r", "--engine", "nowhere"], "nowhere is not installed; the installed"),
        (["release", "prune", "--releases", "RELEASES", "--engine", "nowhere"], "nowhere is not installed; the inst"),
        (["run", "QUERIES", "--as", "nowhere", "--url", "u", "--to", "t", "--collection", "c"], "nowhere is not inst"),
    ],
    ids=["engine", "engine to prune", "store"],
)
def test_unknown_name_gives_one_line(
    words: list[str],
    message: str,
    sample: Path,
    releases: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAUGATE_ENGINE_URL", "http://127.0.0.1:9")
    paths = {"DATA": str(sample), "RELEASES": str(releases), "QUERIES": str(sample / "queries.jsonl")}
    assert failure([paths.get(word, word) for word in words], capfd).startswith(message)


def test_command_of_plugin_is_run_and_listed(install: Install, capfd: pytest.CaptureFixture[str]) -> None:
    module = "import click\ncommand = click.Command('extra', callback=lambda: 3)\n"
    install("commands extra = extra_plugin:command", module)
    assert cli.main(["extra"]) == 3
    assert cli.main(["--help"]) == 0
    assert "a command of extra-plugin" in capfd.readouterr().out
