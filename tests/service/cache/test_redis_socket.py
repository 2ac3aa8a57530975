"""Redis over a Unix socket: cache, rates and drift alarms as over TCP."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis

from taugate.service.replicas import Fleet, RedisCache
from tests.prometheus_process import until
from tests.redis_process import RedisProcess
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

_TIMEOUT = 0.2


def _reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of a Redis that cannot be used."""
    return [record.fields["reason"] for record in caplog.records if record.levelno == logging.WARNING]  # type: ignore[attr-defined]


def _with_cache(url: str, scenario: Callable[[RedisCache], Awaitable[None]]) -> list[bool]:
    """Run a scenario on a cache; returns what the cache reported: whether Redis responds, at each change."""
    changes: list[bool] = []

    async def run() -> None:
        cache = RedisCache(url, _TIMEOUT, 60, changes.append)
        try:
            await scenario(cache)
        finally:
            await cache.close()

    asyncio.run(run())
    return changes


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
        assert _with_cache(f"unix://{user}{server.socket}{options}", scenario) == [True]
        with redis.Redis(unix_socket_path=str(server.socket), db=database) as client:
            assert client.get("a") == b"1"


def test_unix_socket_cache_with_password(tmp_path: Path) -> None:
    async def scenario(cache: RedisCache) -> None:
        assert await _written(cache, "a", b"1")

    with RedisProcess(tmp_path, password="right") as server:
        assert _with_cache(f"unix://:right@{server.socket}", scenario) == [True]


def test_refused_unix_socket_greeting_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A connection whose greeting Redis refused must not be used again: it would be in database 0."""

    async def scenario(cache: RedisCache) -> None:
        assert (await cache.get(["a"]))[0] == "error"
        await asyncio.sleep(0.6)  # the first pause is half a second
        assert (await cache.get(["a"]))[0] == "error"

    with RedisProcess(tmp_path, password="right") as server:
        assert _with_cache(f"unix://:wrong@{server.socket}", scenario) == [False]
        assert _with_cache(f"unix://:right@{server.socket}?db=99", scenario) == [False]
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
    assert _with_cache(f"unix://{path}", scenario) == [False, True, False, True, False]
    assert f"connecting to {path}. No such file or directory" in _reasons(caplog)[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every socket")
def test_socket_without_permission_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cache: RedisCache) -> None:
        assert (await cache.get(["a"]))[0] == "error"

    with RedisProcess(tmp_path) as server:
        server.socket.chmod(0)
        assert _with_cache(f"unix://{server.socket}", scenario) == [False]
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
