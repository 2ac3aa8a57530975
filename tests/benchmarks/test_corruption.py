"""A hundred of the thousand corrupted releases of benchmarks/reliability, and a hundred forged ones."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import find

_FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "reliability"


@pytest.fixture(scope="module")
def corruption() -> Iterator[ModuleType]:
    """The benchmark, which is a folder of scripts."""
    before = {*sys.modules}
    sys.path.insert(0, str(_FOLDER))
    yield importlib.import_module("corruption")
    sys.path.remove(str(_FOLDER))
    for name in {*sys.modules} - before:
        if getattr(sys.modules[name], "__file__", None) and Path(str(sys.modules[name].__file__)).parent == _FOLDER:
            del sys.modules[name]


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


def test_what_is_corrupted_is_refused_by_name(corruption: ModuleType, kinds: list[Path], tmp_path: Path) -> None:
    rows = corruption.corrupted(kinds, 100, tmp_path)
    assert sum(row.releases for row in rows) == sum(row.refused for row in rows) == 100
    assert all(row.sound for row in rows), rows


def test_what_is_forged_crashes_nothing(corruption: ModuleType, kinds: list[Path], tmp_path: Path) -> None:
    rows = corruption.forged(kinds, 100, tmp_path)
    assert sum(row.refused for row in rows) > 50
    assert all(row.sound for row in rows), rows


def test_a_crash_would_be_noticed(corruption: ModuleType, kinds: list[Path], tmp_path: Path) -> None:
    attempts = sys.modules["attempts"]
    worker = tmp_path / "aborts.py"
    worker.write_text("import os, sys\nsys.stdin.readline()\nos.abort()\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(attempts, "_WORKER", worker)
        assert [attempt.outcome for attempt in attempts.attempts(kinds[:2])] == ["crashed", "crashed"]
