"""A copy of the sample that a test may judge, and `taugate judge` as a process of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interruptible import interruptible

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def data(sample: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sample, tmp_path / "zaragoza")


@pytest.fixture
def command(data: Path, releases: Path) -> list[str]:
    """The words of a command that judges four queries."""
    return ["judge", str(data), "--releases", str(releases), "--judge", "ana", "--n", "4"]


@pytest.fixture
def start(command: list[str]) -> Start:
    """Start the command as a process; more words and settings of Popen may be given."""

    def begin(*words: str, **settings: int) -> subprocess.Popen[bytes]:
        environment = os.environ | {"SSH_CONNECTION": "1", "PYTHONPATH": str(Path(__file__).parents[4] / "src")}
        return subprocess.Popen(
            interruptible([sys.executable, "-m", "taugate", *command, *words]), env=environment, **settings
        )

    return begin
