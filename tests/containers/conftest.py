"""Fixtures of the container tests, which need images: `make lab-test` builds them and sets CONTAINER_TESTS."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.engine import Project
from tests.sample_release import write_sample_release


@pytest.fixture(scope="session", autouse=True)
def _images() -> None:
    if not os.environ.get("CONTAINER_TESTS"):
        pytest.skip("`make lab-test` builds the images and runs these")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A compose project, removed with its volumes at the end."""
    project = Project.copied(tmp_path_factory.mktemp("project"))
    try:
        yield project
    finally:
        project.compose("down", "--volumes", check=False)


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A releases directory that every user can read."""
    folder = write_sample_release(tmp_path_factory.mktemp("sample"))
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder
