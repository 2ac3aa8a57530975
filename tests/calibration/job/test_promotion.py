"""`taugate calibrate` promotes by the rules of `taugate release promote`, and one calibration runs at a time."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from taugate.calibration.encoding import source
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.cli import main as cli
from taugate.registry import history
from taugate.registry.catalog import current_id, release_ids
from taugate.registry.history import CALIBRATION_LOCK, calibration_lock
from tests.calibration.commands import arguments
from tests.fake_encoder import write_fake_encoder


@pytest.fixture
def copy(releases: Path, tmp_path: Path) -> Path:
    return shutil.copytree(releases, tmp_path / "releases")


@pytest.fixture
def another(tmp_path: Path, sample: Path) -> Path:
    return write_fake_encoder(tmp_path / "another", texts(sample), seed=1)


def texts(sample: Path) -> list[str]:
    return (sample / "corpus.jsonl").read_text(encoding="utf-8").splitlines()


def failure(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    capfd.readouterr()
    assert cli.main(arguments) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    (said,) = [line for line in printed.err.splitlines() if line.startswith("taugate: ")]
    return said


@pytest.mark.slow
def test_named_encoder_may_replace_another(sample: Path, encoder: Path, another: Path, copy: Path) -> None:
    for named in (another, encoder):
        before = set(release_ids(copy))
        assert cli.main(arguments(sample, copy, named)) == 0
        assert {current_id(copy)} == set(release_ids(copy)) - before
    assert [event.forced for event in history.read(copy).events] == [(), ("new encoder",), ("new encoder",)]


def test_default_encoder_cannot_replace_another(
    sample: Path, copy: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said before any work: nothing is exported, read or written."""
    monkeypatch.setattr(source, "_export", lambda *_: pytest.fail("exported"))
    before = sorted(path.name for path in copy.iterdir())
    said = failure(["calibrate", str(sample), "--releases", str(copy)], capfd)
    assert said == (
        f"taugate: {copy}: the current release was encoded by fake, not by {DEFAULT_ENCODER}; name the encoder to be "
        "used from now on with --encoder, or give --no-promote"
    )
    assert sorted(path.name for path in copy.iterdir()) == before


@pytest.fixture
def default(another: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An encoder that passes for the default one."""
    config = (another / "encoder.json").read_text(encoding="utf-8")
    (another / "encoder.json").write_text(config.replace('"fake"', f'"{DEFAULT_ENCODER}"'), encoding="utf-8")
    monkeypatch.setattr(source, "exported_encoder", lambda name, _: another if name == DEFAULT_ENCODER else Path(name))
    return another


def test_no_promote_accepts_any_encoder(sample: Path, copy: Path, default: Path) -> None:
    before = current_id(copy)
    assert cli.main(["calibrate", str(sample), "--releases", str(copy), "--no-promote"]) == 0
    assert len(release_ids(copy)) == 2
    assert current_id(copy) == before


@pytest.mark.slow
def test_different_export_is_rejected(
    sample: Path, tmp_path: Path, default: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plain = ["calibrate", str(sample), "--releases", str(tmp_path / "r")]
    assert cli.main(plain) == 0
    assert cli.main(plain) == 0, "the same export"
    write_fake_encoder(default, texts(sample), seed=2)
    config = (default / "encoder.json").read_text(encoding="utf-8")
    (default / "encoder.json").write_text(config.replace('"fake"', f'"{DEFAULT_ENCODER}"'), encoding="utf-8")
    before = release_ids(tmp_path / "r")
    said = failure(plain, capfd)
    assert f"another export of {DEFAULT_ENCODER}" in said
    assert "--encoder" in said
    assert release_ids(tmp_path / "r") == before
    assert cli.main([*plain, "--encoder", DEFAULT_ENCODER]) == 0


def test_refused_promotion_keeps_release(
    sample: Path, encoder: Path, copy: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work took long; its release is there, and named."""
    before = current_id(copy)

    def full(*_: object) -> None:
        raise OSError("history.jsonl: cannot be written")

    monkeypatch.setattr("taugate.registry.history.record", full)
    assert cli.main(arguments(sample, copy, encoder, "--seed", "1")) == 1
    (name,) = set(release_ids(copy)) - {before}
    error = capfd.readouterr().err.splitlines()
    assert error[-2:] == [
        f"warning: {copy / name} is written but not promoted:",
        "taugate: history.jsonl: cannot be written",
    ]
    assert current_id(copy) == before
    monkeypatch.undo()
    assert cli.main(["release", "promote", "--releases", str(copy), name]) == 0


def test_concurrent_calibration_is_rejected(
    sample: Path, encoder: Path, copy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in copy.iterdir())
    with calibration_lock(copy):
        said = failure(arguments(sample, copy, encoder), capfd)
        assert f"process {os.getpid()} on " in said
        assert "is calibrating into it; wait until that is done" in said
        assert cli.main(arguments(sample, tmp_path / "elsewhere", encoder)) == 0
    assert sorted(path.name for path in copy.iterdir()) == before
    assert cli.main(arguments(sample, copy, encoder)) == 0


def holder(copy: Path) -> str:
    """Written once the lock is had."""
    try:
        return (copy / CALIBRATION_LOCK).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


@pytest.mark.slow
def test_killed_calibration_releases_lock(
    sample: Path, encoder: Path, copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "taugate", *arguments(sample, copy, encoder, "--seed", "1")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not holder(copy):
            assert process.poll() is None, "it ended without a lock"
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)
        said = failure(arguments(sample, copy, encoder), capfd)
        assert f"process {process.pid} on " in said
        process.send_signal(signal.SIGKILL)
    assert cli.main(arguments(sample, copy, encoder)) == 0
