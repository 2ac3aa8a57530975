"""A releases directory with one release, current, that a test may change."""

import shutil
from pathlib import Path

import pytest

from retrieval.release.catalog import current_id


@pytest.fixture
def copy(releases: Path, tmp_path: Path) -> Path:
    return shutil.copytree(releases, tmp_path / "releases")


@pytest.fixture
def first(copy: Path) -> str:
    return str(current_id(copy))
