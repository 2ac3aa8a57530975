"""Two releases of the sample, either of which a test may promote."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import find, release_ids


class Two(NamedTuple):
    """A releases directory, the release that is current in it and another one."""

    folder: Path
    old: str
    new: str


@pytest.fixture(scope="session")
def _two(releases: Path, sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Two:
    folder = shutil.copytree(releases, tmp_path_factory.mktemp("two") / "releases")
    command = ["calibrate", str(sample), "--releases", str(folder), "--encoder", str(encoder)]
    assert cli.main([*command, "--k", "3", "--seed", "1", "--no-promote"]) == 0
    old = find(folder).name
    (new,) = set(release_ids(folder)) - {old}
    return Two(folder, old, new)


@pytest.fixture
def two(_two: Two, tmp_path: Path) -> Two:
    """A copy that a test may change."""
    return _two._replace(folder=shutil.copytree(_two.folder, tmp_path / "releases"))
