"""A hundred of the thousand corrupted releases of benchmarks/reliability, and a hundred forged ones."""

from pathlib import Path

import pytest

from benchmarks.reliability import attempts, corruption
from taugate.cli import main as cli
from taugate.registry.catalog import find


@pytest.fixture(scope="module")
def kinds(releases: Path, sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Releases that have a file of every kind between them."""
    found = [find(releases)]
    graph = ["--index", "hnsw", "--projection", "query-pca", "--retention", "0.5"]
    for options in (graph, ["--index", "ivf-flat"]):
        folder = tmp_path_factory.mktemp("releases")
        asked = ["calibrate", str(sample), "--releases", str(folder), "--encoder", str(encoder), "--margin", "0.9"]
        assert cli.main([*asked, *options]) == 0
        found.append(find(folder))
    return found


def test_what_is_corrupted_is_refused_by_name(kinds: list[Path], tmp_path: Path) -> None:
    rows = corruption.corrupted(kinds, 100, tmp_path)
    assert sum(row.releases for row in rows) == sum(row.refused for row in rows) == 100
    assert all(row.sound for row in rows), rows


def test_what_is_forged_crashes_nothing(kinds: list[Path], tmp_path: Path) -> None:
    rows = corruption.forged(kinds, 100, tmp_path)
    assert sum(row.refused for row in rows) > 50
    assert all(row.sound for row in rows), rows


def test_a_crash_would_be_noticed(kinds: list[Path], tmp_path: Path) -> None:
    worker = tmp_path / "aborts.py"
    worker.write_text("import os, sys\nsys.stdin.readline()\nos.abort()\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(attempts, "_WORKER", (str(worker),))
        assert [attempt.outcome for attempt in attempts.attempts(kinds[:2])] == ["crashed", "crashed"]
