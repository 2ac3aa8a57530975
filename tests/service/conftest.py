"""Releases and services that tests of several folders share."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import find, release_ids
from taugate.retrieval.reader import Release, load
from tests.chunked_release import write_chunked_release
from tests.service.access.files import ENTRIES, SLOW, WITHIN, entry, write
from tests.service.with_metadata import with_metadata
from tests.service_process import ServiceProcess


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


@pytest.fixture(scope="session")
def rich(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path) -> Path:
    """Releases of the sample with more metadata: a number, a boolean, gaps, and names and values in other scripts."""

    def more(row: int) -> dict[str, Any]:
        tags = ["odd" if row % 2 else "even", f"tag{row % 7}"] if row % 5 else "alone"
        return {
            "year": 1990 + row % 40 + (0.5 if row % 3 == 0 else 0),
            "år": "å" if row % 2 else "z",
            "day": f"20{row % 30:02}-05-{1 + row % 28:02}" + ("T10:30:00+02:00" if row % 2 else ""),
            "checked": row % 5 == 0 if row % 4 else None,
            **({"tags": tags} if row % 3 else {}),
        }

    return with_metadata(sample, encoder, tmp_path_factory.mktemp("rich"), more)


@pytest.fixture(scope="session")
def hybrid(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of the sample in chunks whose score has a lexical part, with the weight 0.7."""
    return write_chunked_release(sample, encoder, tmp_path_factory.mktemp("hybrid"), "--lexical", "0.7")


@pytest.fixture(scope="session")
def release(releases: Path) -> Release:
    """The usual release, opened here; not for tests whose releases are others."""
    return load(find(releases), 1)


@pytest.fixture(scope="session")
def service(releases: Path) -> Iterator[ServiceProcess]:
    """A service of the usual release, for tests that its earlier traffic does not matter to."""
    with ServiceProcess(releases) as process:
        yield process.ready()


@pytest.fixture(scope="session")
def chunked(hybrid: Path) -> Iterator[ServiceProcess]:
    """A service of the release in chunks."""
    with ServiceProcess(hybrid) as process:
        yield process.ready()


@pytest.fixture(scope="session")
def keyed(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service with API keys, one of them for some documents and one with a rate, and the playground."""
    entries = [
        *ENTRIES,
        entry(WITHIN, "tenant", "search", filter={"category": "bygglov"}),
        entry(SLOW, "slow", "search", queries_per_second=0.001),
    ]
    keys = write(tmp_path_factory.mktemp("keys") / "keys.json", entries)
    with ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys), TAUGATE_PLAYGROUND="on") as process:
        yield process.ready()


@pytest.fixture
def two(_two: Two, tmp_path: Path) -> Two:
    """A copy that a test may change."""
    return _two._replace(folder=shutil.copytree(_two.folder, tmp_path / "releases"))
