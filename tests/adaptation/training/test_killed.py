"""An adaptation that was killed goes on, and ends in the same bytes as one that was not."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("accelerate")
pytest.importorskip("datasets")

from taugate.adaptation.training import run
from taugate.cli import main as cli
from tests.adaptation.training.encoders import write_small_bert
from tests.calibration.commands import refusal

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bert(tmp_path_factory.mktemp("small"))


def arguments(sample: Path, model: Path, target: Path) -> list[str]:
    asked = ["--split", "test", "--recipe", "merge", "--budget", "6steps"]
    return [str(sample), "--encoder", str(model), "--to", str(target), *asked]


def start_and_kill(command: list[str], moment: Callable[[], bool]) -> None:
    process = subprocess.Popen([sys.executable, "-m", "tests.adaptation.training.adapting", *command])
    try:
        while not moment():
            assert process.poll() is None, "it ended before its moment came"
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_kill_9_in_the_middle_of_training_and_after_it(
    sample: Path, small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed, work = tmp_path / "whole", tmp_path / "killed", tmp_path / ".killed.work"
    cli.main(["adapt", *arguments(sample, small, whole)])
    start_and_kill(
        arguments(sample, small, killed), lambda: any((work / "layers" / "layers").glob("checkpoint-*/whole"))
    )
    assert not killed.exists()
    said = refusal(["adapt", *arguments(sample, small, killed), "--seed", "1"], killed, capfd)
    assert said.endswith(
        f"{work}: has unfinished work of another command, base encoder, data set or version; repeat that command, or "
        "remove the folder to begin anew"
    )
    start_and_kill(arguments(sample, small, killed), (work / "merge-0.5" / "onnx").is_dir)
    monkeypatch.setattr(run, "SAVE_SECONDS", 0.0)
    capfd.readouterr()
    cli.main(["adapt", *arguments(sample, small, killed)])
    assert "going on with the unfinished work" in capfd.readouterr().err
    assert files(killed) == files(whole)
    assert not work.exists()
