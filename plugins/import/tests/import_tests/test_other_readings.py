"""Numbers of files as LibreOffice and Chromium show them, which know nothing of the importer, are in its documents."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import CHROMIUM, require

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "program"), [("office", ["soffice"]), ("pages", CHROMIUM)])
def test_numbers_that_another_program_shows_are_imported(kind: str, program: list[str], tmp_path: Path) -> None:
    require(*program)
    command = [sys.executable, "-m", "benchmarks.ingestion.shown_numbers", kind, str(tmp_path / kind)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    read = json.loads(finished.stdout)
    assert all(count > 2 for count in read["words"])
    assert {name: words for name, words in read["lost"].items() if words} == {}
