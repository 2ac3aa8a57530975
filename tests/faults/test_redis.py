"""Failures of Redis: every request gets the correct reply, not much later than without Redis."""

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.service import replicas as fleet_module
from taugate.service.access.admission import tolerance
from taugate.service.replicas import Fleet, RedisCache, SharedRates
from tests.faults.load import Load, answers
from tests.faults.redis_proxy import RedisProxy
from tests.pace import at_most
from tests.redis_process import RedisProcess
from tests.service_process import ServiceProcess

STRANGE = {
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "always OK": b"+OK\r\n",
    "a number": b":7\r\n",
    "a length that is none": b"$abc\r\n",
    "no length": b"*-7\r\n",
    "a list too long": b"*5\r\n$1\r\na\r\n:1\r\n*0\r\n$-1\r\n+x\r\n",
    "lists in lists": b"*1\r\n" * 20_000,
    "more than there is memory": b"$99999999999999\r\n",
    "infinite": b"$3\r\ninf\r\n",
    "not a number": b"$3\r\nnan\r\n",
    "zeros": bytes(100),
    "an unknown error": b"-WHAT is this\r\n",
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "read only": b"-READONLY You can't write against a read only replica.\r\n",
    "no permission": b"-NOPERM this user has no permissions\r\n",
}


@pytest.mark.parametrize("known", [True, False], ids=["after a valid reply", "from the first reply"])
@pytest.mark.parametrize("answer", STRANGE.values(), ids=STRANGE.keys())
@pytest.mark.slow
def test_strange_server_counts_as_failed_redis(
    redis: RedisProcess, answer: bytes, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "_TIMEOUT_SECONDS", 0.2)

    async def ask() -> None:
        store = RedisCache(proxy.url, 0.5, 60, lambda up: None)
        rates = SharedRates(proxy.url, 0.5)
        if known:
            assert (await store.get(["a", "b"]))[0] in {"miss", "hit"}
            assert await rates.spend(f"key {answer!r}", 1, 1, tolerance(1)) == 0
        proxy.answer = answer
        assert await store.get(["a", "b"]) == ("error", [None, None])
        assert await rates.spend("key", 1, 1, tolerance(1)) is None
        store.put({"a": b"1"})
        await asyncio.sleep(0)
        await store.close()
        await rates.close()

    with RedisProxy(redis.port) as proxy:
        asyncio.run(asyncio.wait_for(ask(), 10))
        fleet = Fleet(proxy.url, "release", 60)
        assert fleet.find("id", time.time()) is None
        fleet = Fleet(proxy.url, "release", 60)
        assert fleet.change("state", lambda found: b"mine") is False
        fleet = Fleet(proxy.url, "release", 60)
        assert isinstance(fleet.count("judgement"), int)
        fleet.close()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path_factory.mktemp("redis")) as server:
        yield server


TIMEOUT = 0.05  # seconds, five times the default, for a busy machine
LATEST = 2.0  # seconds for a reply: many times what a query and two timeouts take


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


@pytest.fixture
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


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize("kind", ["always OK", "a length that is none", "infinite"])
@pytest.mark.slow
def test_redis_sends_nonsense(service: ServiceProcess, between: RedisProxy, expected: dict, kind: str) -> None:
    between.answer = STRANGE[kind]
    check_replies(service, expected, 0.5)


@pytest.mark.usefixtures("sound")
@pytest.mark.slow
def test_redis_is_slow(service: ServiceProcess, between: RedisProxy, expected: dict, rng: random.Random) -> None:
    """Delays around the timeout: a late reply must not reach the next request."""
    between.delay = lambda: rng.uniform(0, 2 * TIMEOUT)
    check_replies(service, expected, 3)


@pytest.mark.usefixtures("sound")
@pytest.mark.slow
def test_redis_hangs(service: ServiceProcess, redis: RedisProcess, expected: dict) -> None:
    redis.pause()
    try:
        check_replies(service, expected, 2)
    finally:
        redis.resume()


@pytest.mark.usefixtures("sound")
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


@pytest.mark.usefixtures("sound")
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
