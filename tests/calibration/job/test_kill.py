"""kill -9 at any moment of a calibration: what was current still is, and nothing half-written is listed."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from taugate.registry.catalog import current_id, release_ids
from taugate.release.layout import CHECK
from taugate.release.verify import verify
from taugate.retrieval.reader import load
from tests.calibration.commands import Printed

pytestmark = pytest.mark.slow


def start(
    sample: Path, releases: Path, encoder: Path, seed: int, taugate: Path | None = None
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "taugate"] if taugate is None else [str(taugate)]
    command += ["calibrate", str(sample), "--releases", str(releases), "--encoder", str(encoder), "--seed", str(seed)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("number", [6, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_killed_calibration_leaves_releases_intact(
    number: int, sample: Path, encoder: Path, releases: Path, taugate: Path | None, tmp_path: Path
) -> None:
    """In forks, which import nothing, so that every moment is one of the calibration.

    Half of the moments are spread over the run, half over its last part, where the release is written.
    """
    copy = shutil.copytree(releases, tmp_path / "releases")
    began = time.monotonic()
    assert start(sample, copy, encoder, 1, taugate).wait() == 0
    seconds = time.monotonic() - began
    moments = np.concatenate([np.linspace(0, 1, number // 2), np.linspace(0.8, 1.02, number // 2)]) * seconds
    for seed, moment in enumerate(moments.tolist(), start=2):
        before, known = current_id(copy), set(release_ids(copy))
        process = start(sample, copy, encoder, seed, taugate)
        time.sleep(moment)
        process.send_signal(signal.SIGKILL if taugate is None else signal.SIGUSR1)  # kills the fork
        assert process.wait() in {0, -signal.SIGKILL, -signal.SIGUSR1}  # the last before it had a fork
        for name in release_ids(copy):
            verify(copy / name)
        assert current_id(copy) in {before, *release_ids(copy)} - (known - {before})
    assert load(copy / str(current_id(copy))).manifest.data.documents == 503
    visible = {entry.name for entry in copy.iterdir() if not entry.name.startswith(".")}
    assert visible == {*release_ids(copy), CHECK, "current", "history.jsonl"}


def test_terminated_calibration_removes_temporary_files(
    sample: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    process = start(sample, tmp_path / "releases", encoder, seed=0)
    # A file in it: the folder itself is there some microseconds before anything knows that it has to be removed.
    while not list((tmp_path / "tmp").glob("taugate-*/*")) and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    assert process.wait() in {0, 130}
    assert list((tmp_path / "tmp").glob("taugate-*")) == []


def test_full_disk_writes_no_release(
    sample: Path, encoder: Path, releases: Path, tmp_path: Path, capfd: Printed
) -> None:
    """Files may not grow beyond a limit, as on a full disk; what was current still is."""
    copy = shutil.copytree(releases, tmp_path / "releases")
    before = sorted(path.name for path in copy.iterdir())
    command = [sys.executable, "-m", "taugate", "calibrate", str(sample), "--releases", str(copy), "--seed", "1"]
    for limit in (100_000, 500_000):  # bytes: too little for the spooled corpus, then for the encoder
        done = subprocess.run(
            ["prlimit", f"--fsize={limit}", *command, "--encoder", str(encoder)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith("taugate: ")
        assert "Traceback" not in done.stderr
        assert sorted(path.name for path in copy.iterdir()) == before
