"""The release of these tests' services, and the places where processes share its alarms."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.drift.observations import Observations
from taugate.registry.catalog import find
from taugate.retrieval.reader import Release, load
from tests.redis_process import RedisProcess
from tests.service.drift.processes import InFile, InRedis, StateStore
from tests.service.drift.traffic import foreign_queries, observed, queries_until_alarm
from tests.service_process import ServiceProcess


@pytest.fixture(scope="session")
def releases(cosines: Path) -> Path:
    """For `foreign_queries`, which are one and the same to the encoder, and because vectors are replaced."""
    return cosines


@pytest.fixture(scope="session")
def release(releases: Path) -> Release:
    return load(find(releases), 1)


@pytest.fixture(scope="module")
def service(releases: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(releases) as process:
        yield process.ready()


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def needed(release: Release) -> int:
    return queries_until_alarm(release)


@pytest.fixture(scope="session")
def seen(release: Release, needed: int) -> Observations:
    """As many foreign questions as raise one alarm, of one signal, in a process that sees all of them."""
    return observed(release, foreign_queries(needed))
