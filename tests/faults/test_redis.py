"""Failures of Redis: every request gets the correct reply, not much later than without Redis."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.load import Load, answers
from tests.faults.redis_proxy import RedisProxy
from tests.faults.test_no_redis import STRANGE
from tests.pace import at_most
from tests.redis_process import RedisProcess
from tests.service_process import ServiceProcess

TIMEOUT = 0.05  # seconds, five times the default, for a busy machine
LATEST = 2.0  # seconds for a reply: many times what a query and two timeouts take


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
    """A service that uses Redis for rates, replies and feedback of every query."""
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
    """Start each fault with a service that uses Redis, and end it with a working Redis."""
    deadline = time.monotonic() + 120
    while "taugate_redis_up 1.0" not in service.http.get("/metrics").text:
        assert time.monotonic() < deadline, "the service does not use Redis again"
        service.http.post("/search", json={"query": "permit"})
        time.sleep(0.1)
    yield
    between.delay, between.answer = (lambda: 0.0), None
    between.hang_up()


@pytest.fixture(scope="module")
def expected(service: ServiceProcess) -> dict:
    return answers(service)


def check_replies(service: ServiceProcess, expected: dict, seconds: float = 1.0) -> None:
    """Search and send judgements for some seconds, and check the replies."""
    with Load(service.port, expected, keep=True) as load:
        ended = time.monotonic() + seconds
        while time.monotonic() < ended:
            judged = {"query_id": "f" * 32, "document_id": "d", "relevant": True}
            assert service.http.post("/feedback", json=judged).status_code == 404
    assert not load.incorrect
    assert not load.broken
    assert len(load.replies) > 5
    assert max(reply.seconds for reply in load.replies) < at_most(LATEST)


@pytest.mark.parametrize("kind", ["always OK", "a length that is none", "infinite"])
@pytest.mark.slow
def test_redis_sends_nonsense(service: ServiceProcess, between: RedisProxy, expected: dict, kind: str) -> None:
    between.answer = STRANGE[kind]
    check_replies(service, expected, 0.5)


@pytest.mark.slow
def test_redis_is_slow(service: ServiceProcess, between: RedisProxy, expected: dict, rng: random.Random) -> None:
    """Delays around the timeout: a late reply must not reach the next request."""
    between.delay = lambda: rng.uniform(0, 2 * TIMEOUT)
    check_replies(service, expected, 3)


@pytest.mark.slow
def test_redis_hangs(service: ServiceProcess, redis: RedisProcess, expected: dict) -> None:
    redis.pause()
    try:
        check_replies(service, expected, 2)
    finally:
        redis.resume()


@pytest.mark.slow
def test_redis_starts_to_require_password(
    service: ServiceProcess, redis: RedisProcess, between: RedisProxy, expected: dict
) -> None:
    redis.client.config_set("requirepass", "secret")
    try:
        between.hang_up()
        check_replies(service, expected)
    finally:
        redis.client.config_set("requirepass", "")  # on its old connection, which needs no password


def test_redis_is_killed(service: ServiceProcess, redis: RedisProcess, expected: dict) -> None:
    """The last test, because Redis stays down."""
    with Load(service.port, expected, keep=True) as load:
        load.wait_for_answers()
        redis.kill()
        load.wait_for_answers(50)
    assert not load.incorrect
    assert not load.broken
    assert max(reply.seconds for reply in load.replies) < at_most(LATEST)
    log = service.log()
    assert "Traceback" not in log
    assert "secret" not in log
