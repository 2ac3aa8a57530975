"""A Redis that is slow, down, refusing or back again delays one query by milliseconds, over TCP and a socket."""

import asyncio
import gc
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import redis
import uvloop

from taugate.service.replicas import Fleet, RedisCache
from tests.pace import at_most
from tests.prometheus_process import until
from tests.redis_process import RedisProcess
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

TIMEOUT = 0.2  # twenty times the default, for a busy machine
Scenario = Callable[[RedisCache], Awaitable[None]]


def run(url: str, scenario: Scenario, ttl: int = 60) -> list[bool]:
    """Run a scenario on a cache; returns what the cache reported: whether Redis responds, at each change."""
    changes: list[bool] = []

    async def body() -> None:
        store = RedisCache(url, TIMEOUT, ttl, changes.append)
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(asyncio.wait_for(body(), 60))
    return changes


async def written(server: RedisProcess, key: str) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(server.client.exists, key):
            await asyncio.sleep(0.01)


async def answers_again(store: RedisCache) -> str:
    async with asyncio.timeout(60):
        while (outcome := (await store.get(["a"]))[0]) in ("bypass", "error"):
            await asyncio.sleep(0.05)
    return outcome


def test_written_value_expires_after_ttl(tmp_path: Path) -> None:
    async def scenario(store: RedisCache) -> None:
        assert await store.get(["a", "b"]) == ("miss", [None, None])
        store.put({"a": b"\x00\xff", "c": b"2"})
        await written(server, "c")
        assert await store.get(["a", "b", "c"]) == ("hit", [b"\x00\xff", None, b"2"])
        assert 0 < server.client.ttl("a") <= 60

    with RedisProcess(tmp_path) as server:
        assert run(server.url, scenario) == [True]


def test_killed_redis_is_bypassed_and_recovers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: RedisCache) -> None:
        assert (await store.get(["a"]))[0] == "miss"
        server.kill()
        began = time.perf_counter()
        assert await store.get(["a"]) == ("error", [None])
        assert time.perf_counter() - began < at_most(2 * TIMEOUT)
        outcomes = [(await store.get(["a"]))[0] for _ in range(50)]
        assert set(outcomes) == {"bypass"}
        store.put({"a": b"1"})  # goes nowhere, and says nothing
        with RedisProcess(tmp_path, server.port):
            assert await answers_again(store) == "miss"

    with RedisProcess(tmp_path) as server, caplog.at_level(logging.INFO, "taugate.service.redis_client"):
        assert run(server.url, scenario) == [True, False, True]
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]


def test_hung_redis_is_bypassed(tmp_path: Path) -> None:
    async def scenario(store: RedisCache) -> None:
        assert (await store.get(["a"]))[0] == "miss"
        server.pause()
        try:
            began = time.perf_counter()
            outcomes = await asyncio.gather(*(store.get(["a"]) for _ in range(100)))
            assert {outcome for outcome, _ in outcomes} == {"error"}
            assert time.perf_counter() - began < at_most(50 * TIMEOUT), "all 100 wait at the same time"
            assert (await store.get(["a"]))[0] == "bypass"
        finally:
            server.resume()
        assert await answers_again(store) == "miss"

    with RedisProcess(tmp_path) as server:
        assert run(server.url, scenario) == [True, False, True]


def test_one_query_tries_after_pause(tmp_path: Path) -> None:
    async def scenario(store: RedisCache) -> None:
        assert (await store.get(["a"]))[0] == "error"
        await asyncio.sleep(0.6)  # the first pause is half a second
        outcomes = [outcome for outcome, _ in await asyncio.gather(*(store.get(["a"]) for _ in range(20)))]
        assert sorted(outcomes) == ["bypass"] * 19 + ["error"]

    run("redis://127.0.0.1:1/0", scenario)


def test_wrong_password_opens_breaker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: RedisCache) -> None:
        assert (await store.get(["a"]))[0] == "error"
        assert (await store.get(["a"]))[0] == "bypass"

    with RedisProcess(tmp_path, password="right") as server:
        assert run(server.url.replace("right", "wrong"), scenario) == [False]
    assert "wrong" not in caplog.text


def test_malformed_redis_url_is_refused() -> None:
    async def scenario() -> None:
        with pytest.raises(ValueError, match="scheme"):
            RedisCache("127.0.0.1:6379", TIMEOUT, 60, lambda up: None)

    asyncio.run(scenario())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_unknown_host_leaves_no_unretrieved_error(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lookup(*_: object, **__: object) -> None:
        time.sleep(0.05)  # longer than the deadline
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    said: list[str] = []

    async def body() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(str(context["message"])))
        store = RedisCache("redis://unknown.invalid:6379", 0.01, 60, lambda _: None)
        assert await store.get(["a"]) == ("error", [None])
        with suppress(OSError):  # ends after the lookup that is in progress
            await asyncio.get_running_loop().getaddrinfo("unknown.invalid", 6379)
        await asyncio.sleep(0.05)
        gc.collect()
        await store.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(body())
    assert said == []


def _reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of a Redis that cannot be used."""
    return [record.fields["reason"] for record in caplog.records if record.levelno == logging.WARNING]  # type: ignore[attr-defined]


async def _written(cache: RedisCache, key: str, value: bytes) -> bool:
    """Write a value until it can be read, for ten seconds: nothing is written while Redis does not respond."""
    for _ in range(500):
        cache.put({key: value})
        if await cache.get([key]) == ("hit", [value]):
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.parametrize(("user", "options", "database"), [("", "", 0), ("", "?db=1", 1), ("shop:s%40fe@", "?db=2", 2)])
def test_unix_socket_cache_round_trip(tmp_path: Path, user: str, options: str, database: int) -> None:
    async def scenario(cache: RedisCache) -> None:
        assert (await cache.get(["a"]))[0] == "miss"
        assert await _written(cache, "a", b"1")

    with RedisProcess(tmp_path) as server:
        server.client.acl_setuser("shop", enabled=True, passwords=["+s@fe"], keys=["*"], commands=["+@all"])
        assert run(f"unix://{user}{server.socket}{options}", scenario) == [True]
        with redis.Redis(unix_socket_path=str(server.socket), db=database) as client:
            assert client.get("a") == b"1"


def test_refused_unix_socket_greeting_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A connection whose greeting Redis refused must not be used again: it would be in database 0."""

    async def scenario(cache: RedisCache) -> None:
        assert (await cache.get(["a"]))[0] == "error"
        await asyncio.sleep(0.6)  # the first pause is half a second
        assert (await cache.get(["a"]))[0] == "error"

    with RedisProcess(tmp_path, password="right") as server:
        assert run(f"unix://:wrong@{server.socket}", scenario) == [False]
        assert run(f"unix://:right@{server.socket}?db=99", scenario) == [False]
    password, database = _reasons(caplog)
    assert "invalid username-password" in password
    assert "wrong@" not in password
    assert "DB index is out of range" in database


def test_missing_socket_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cache: RedisCache) -> None:
        assert (await cache.get(["a"]))[0] == "error"
        for _ in range(2):  # Redis starts, ends, and starts again
            with RedisProcess(tmp_path):
                assert await _written(cache, "a", b"1")
            assert (await cache.get(["a"]))[0] == "error"

    path = tmp_path / "redis.sock"
    assert run(f"unix://{path}", scenario) == [False, True, False, True, False]
    assert f"connecting to {path}. No such file or directory" in _reasons(caplog)[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every socket")
def test_socket_without_permission_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cache: RedisCache) -> None:
        assert (await cache.get(["a"]))[0] == "error"

    with RedisProcess(tmp_path) as server:
        server.socket.chmod(0)
        assert run(f"unix://{server.socket}", scenario) == [False]
    assert f"connecting to {server.socket}. Permission denied" in _reasons(caplog)[0]


def test_replicas_share_drift_over_socket(tmp_path: Path) -> None:
    with RedisProcess(tmp_path) as server:
        one, other = (Fleet(f"unix://{server.socket}", "release", 60) for _ in range(2))
        assert one.change("state:x", lambda _: b"1")
        seen: list[bytes | None] = []
        assert other.change("state:x", seen.append)  # type: ignore[func-returns-value]
        assert seen == [b"1"]


def test_service_uses_redis_over_socket(releases: Path, tmp_path: Path) -> None:
    settings = {"TAUGATE_REDIS_URL": f"unix://{tmp_path}/redis.sock", "TAUGATE_REDIS_TIMEOUT_MS": "500"}
    settings["TAUGATE_QUERIES_PER_SECOND"] = "1000"  # which are counted in Redis as well
    with RedisProcess(tmp_path) as server, ServiceProcess(releases, **settings) as service:
        http = service.ready().http
        for number in range(3):
            assert http.post("/search", json={"query": f"permit {number}"}).status_code == 200
        until(lambda: scrape(service)["taugate_redis_up{}"] == 1)
        until(lambda: server.client.dbsize() > 3)
        assert "Redis is not responding" not in service.log()
