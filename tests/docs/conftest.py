"""A quickstart that several pages begin with."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that `taugate quickstart --no-serve` writes."""
    folder = tmp_path_factory.mktemp("once")
    command = [sys.executable, "-m", "taugate", "quickstart", "--no-serve"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return folder / "quickstart"
