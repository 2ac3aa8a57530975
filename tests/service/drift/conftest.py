"""The release of these tests' services, and the places where processes share its alarms."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.drift.observations import Observations
from taugate.registry.catalog import find
from taugate.retrieval.reader import Release, load
from tests.redis_process import RedisProcess
from tests.service.drift.processes import InFile, InRedis, StateStore
from tests.service.drift.traffic import foreign_queries, observed, queries_until_alarm


@pytest.fixture(scope="session")
def releases(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores are cosines alone: `foreign_queries` are one and the same to the encoder, and its vectors are replaced."""
    folder = tmp_path_factory.mktemp("cosines")
    command = ["calibrate", str(sample), "--releases", str(folder), "--encoder", str(encoder), "--lexical", "off"]
    assert cli.main(command) == 0
    return folder


@pytest.fixture(scope="module")
def release(releases: Path) -> Release:
    return load(find(releases), 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path_factory.mktemp("redis")) as redis:
        yield redis


@pytest.fixture
def in_redis(server: RedisProcess) -> InRedis:
    return InRedis(server)


@pytest.fixture
def in_file(tmp_path: Path) -> InFile:
    return InFile(tmp_path)


@pytest.fixture(params=["in_redis", "in_file"])
def place(request: pytest.FixtureRequest) -> StateStore:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def needed(release: Release) -> int:
    return queries_until_alarm(release)


@pytest.fixture(scope="module")
def seen(release: Release, needed: int) -> Observations:
    """As many foreign questions as raise one alarm, of one signal, in a process that sees all of them."""
    return observed(release, foreign_queries(needed))
