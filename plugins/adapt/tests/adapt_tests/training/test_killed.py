"""An adaptation that was killed or interrupted goes on, and ends in the same bytes as one that was not."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("accelerate")
pytest.importorskip("datasets")

from adapt_tests.training.encoders import write_small_bert
from taugate.cli import main as cli
from taugate_adapt import budget
from taugate_adapt.encoder_trainer import EncoderTrainer
from taugate_adapt.training import run
from tests.calibration.commands import refusal
from tests.sample_part import write_part

pytestmark = [pytest.mark.model, pytest.mark.slow]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bert(tmp_path_factory.mktemp("small"), layers=2)


def arguments(sample: Path, model: Path, target: Path) -> list[str]:
    requested = ["--split", "test", "--recipe", "merge", "--budget", "6steps"]
    return ["adapt", str(sample), "--encoder", str(model), "--to", str(target), *requested]


def start_and_kill(command: list[str], moment: Callable[[], bool]) -> None:
    process = subprocess.Popen([sys.executable, str(Path(__file__).with_name("adapting.py")), *command[1:]])
    try:
        while not moment():
            assert process.poll() is None, "it ended before its moment came"
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_killed_training_resumes_to_same_bytes(
    sample: Path, small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, killed, work = tmp_path / "whole", tmp_path / "killed", tmp_path / ".killed.work"
    data = write_part(sample, tmp_path / "data", 160)
    command = arguments(data, small, killed)
    monkeypatch.setattr(budget, "MERGE_WEIGHTS", (0.5,))
    cli.main(arguments(data, small, complete))
    start_and_kill(command, lambda: any((work / "layers" / "layers").glob("checkpoint-*/whole")))
    assert not killed.exists()
    message = refusal([*command, "--seed", "1"], killed, capfd)
    assert message.endswith(
        f"{work}: has unfinished work of another command, base encoder, data set or version; repeat that command, or "
        "remove the folder to start again"
    )
    with_best_map = EncoderTrainer.with_best_map

    def interrupted(shop: EncoderTrainer, name: Any, *rest: Any) -> object:
        result = with_best_map(shop, name, *rest)
        if name == "merge":
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patched:
        patched.setattr(EncoderTrainer, "with_best_map", interrupted)
        patched.setattr(run, "SAVE_SECONDS", 0.0)
        assert cli.main(command) == 130
    assert capfd.readouterr().err.splitlines()[-2:] == [
        f"the unfinished work is kept in {work}; run the same command to resume",
        "taugate: interrupted",
    ]
    assert not killed.exists()
    cli.main(command)
    assert "resuming the unfinished work" in capfd.readouterr().err
    assert files(killed) == files(complete)
    assert not work.exists()


def test_early_interrupt_leaves_nothing(
    sample: Path, small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(EncoderTrainer, "train", interrupted)
    assert cli.main(arguments(sample, small, tmp_path / "encoder")) == 130
    assert capfd.readouterr().err.splitlines()[-1] == "taugate: interrupted"
    assert list(tmp_path.iterdir()) == []
