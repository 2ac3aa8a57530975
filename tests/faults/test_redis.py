"""Whatever becomes of Redis, every request is answered, rightly, and not much later than without it."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.load import Load, answers
from tests.faults.redis_proxy import RedisProxy
from tests.faults.test_no_redis import STRANGE
from tests.redis_process import RedisProcess
from tests.service_process import ServiceProcess

TIMEOUT = 0.05  # seconds, five times the default, for a busy machine
LATEST = 2.0  # seconds for a reply: many times what a query and two timeouts take, for a busy machine


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def between(redis: RedisProcess) -> Iterator[RedisProxy]:
    with RedisProxy(redis.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def service(releases: Path, between: RedisProxy) -> Iterator[ServiceProcess]:
    """Every query asks Redis: for its rate, for its reply, and with the feedback."""
    settings = {
        "TAUGATE_REDIS_URL": between.url,
        "TAUGATE_REDIS_TIMEOUT_MS": str(round(1000 * TIMEOUT)),
        "TAUGATE_CACHE_BYTES": "0",
        "TAUGATE_QUERIES_PER_SECOND": "100000",
    }
    with ServiceProcess(releases, **settings) as process:
        yield process.ready()


@pytest.fixture(autouse=True)
def sound(between: RedisProxy, service: ServiceProcess) -> Iterator[None]:
    """Each fault meets a service that uses Redis, and leaves it a Redis that answers."""
    deadline = time.monotonic() + 30
    while "taugate_redis_up 1.0" not in service.http.get("/metrics").text:
        assert time.monotonic() < deadline, "Redis is not in use again"
        service.http.post("/search", json={"query": "permit"})
        time.sleep(0.1)
    yield
    between.delay, between.answer = (lambda: 0.0), None
    between.hang_up()


@pytest.fixture(scope="module")
def expected(service: ServiceProcess) -> dict:
    return answers(service)


def asked(service: ServiceProcess, expected: dict, seconds: float = 1.0) -> None:
    """Search and judge all the while."""
    with Load(service.port, expected, keep=True) as load:
        ended = time.monotonic() + seconds
        while time.monotonic() < ended:
            judged = {"query_id": "f" * 32, "document_id": "d", "relevant": True}
            assert service.http.post("/feedback", json=judged).status_code == 404
    assert not load.wrong
    assert not load.broken
    assert len(load.told) > 5
    assert max(each.seconds for each in load.told) < LATEST


@pytest.mark.parametrize("kind", ["always OK", "a length that is none", "infinite"])
def test_it_answers_nonsense(service: ServiceProcess, between: RedisProxy, expected: dict, kind: str) -> None:
    between.answer = STRANGE[kind]
    asked(service, expected, 0.5)


def test_it_is_slow(service: ServiceProcess, between: RedisProxy, expected: dict, rng: random.Random) -> None:
    """Around the timeout, so that answers come to those who have just given up: nobody may be given another's."""
    between.delay = lambda: rng.uniform(0, 2 * TIMEOUT)
    asked(service, expected, 3)


def test_it_hangs(service: ServiceProcess, redis: RedisProcess, expected: dict) -> None:
    redis.pause()
    try:
        asked(service, expected, 2)
    finally:
        redis.resume()


def test_it_wants_a_password_from_now_on(
    service: ServiceProcess, redis: RedisProcess, between: RedisProxy, expected: dict
) -> None:
    redis.client.config_set("requirepass", "secret")
    try:
        between.hang_up()
        asked(service, expected)
    finally:
        redis.client.config_set("requirepass", "")  # on its old connection, which nobody asks for one


def test_it_is_killed(service: ServiceProcess, redis: RedisProcess, expected: dict) -> None:
    """Last, as it stays so."""
    with Load(service.port, expected, keep=True) as load:
        load.goes_on()
        redis.kill()
        load.goes_on(50)
    assert not load.wrong
    assert not load.broken
    assert max(each.seconds for each in load.told) < LATEST
    log = service.log()
    assert "Traceback" not in log
    assert "secret" not in log
