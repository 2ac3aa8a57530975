"""A quickstart that several pages begin with."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that `taugate quickstart --no-serve` writes.

    The processes of pytest-xdist share them: the first one encodes the sample, which takes half a minute, and the
    others wait, in place of encoding it at the same time.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "quickstart-once"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done"
        if not done.exists():
            command = [sys.executable, "-m", "taugate", "quickstart", "--no-serve"]
            subprocess.run(command, cwd=folder, capture_output=True, check=True)
            done.touch()
    return folder / "quickstart"
