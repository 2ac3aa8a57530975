"""The service withstands the attacks of `make attacks` that take seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("attack", ["trailers", "key-in-trailer", "upgrades", "smuggling", "other-host", "unread-log"])
def test_service_withstands_attack(releases: Path, attack: str) -> None:
    command = [sys.executable, "-m", "benchmarks.reliability.attacks", attack, "--releases", str(releases)]
    finished = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
