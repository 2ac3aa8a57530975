"""A releases directory that tests may change, the `taugate release` command on it, and an empty object store."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import current_id
from tests.object_storage import MemoryStorage, ObjectStorage, empty_bucket
from tests.release.clones import clone


@pytest.fixture
def copy(releases: Path, tmp_path: Path) -> Path:
    """One release, current, promoted by a calibration."""
    return shutil.copytree(releases, tmp_path / "releases")


@pytest.fixture
def first(copy: Path) -> str:
    return str(current_id(copy))


@pytest.fixture
def three(copy: Path, first: str) -> list[str]:
    """Ids of three more, none of them current."""
    return [clone(copy / first, minute, parent=first) for minute in range(3)]


@pytest.fixture
def release(copy: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`taugate release …` on the copy: exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = cli.main(["release", *arguments, "--releases", str(copy)])
        printed = capfd.readouterr()
        assert "Traceback" not in printed.err
        return code, printed.out, printed.err

    return run


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    """An empty bucket, with the environment that leads there."""
    bucket = empty_bucket()
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return bucket


@pytest.fixture
def memory(tmp_path: Path) -> MemoryStorage:
    """An empty store for tests of what is in it, not of how S3 answers: a push to S3 takes a second."""
    return MemoryStorage(f"{tmp_path}/store")
