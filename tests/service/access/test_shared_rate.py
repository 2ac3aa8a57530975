"""Replicas with one Redis share a key's rate; if Redis fails, only the sharing is lost."""

import asyncio
import time
from pathlib import Path

from taugate.service.access.admission import tolerance
from taugate.service.replicas import SharedRates
from tests.pace import at_most
from tests.redis_process import RedisProcess
from tests.service.access.files import APP, bearer, entry, write
from tests.service_process import ServiceProcess

TIMEOUT = 0.2  # twenty times the default, for a busy machine
SLOW = 0.01  # a rate so low that no query is paid off within a test


def test_replicas_share_rate(tmp_path: Path) -> None:
    async def scenario() -> list[float | None]:
        replicas = [SharedRates(server.url, TIMEOUT) for _ in range(2)]
        waits = [await replicas[number % 2].spend("app", 20, 1, tolerance(20)) for number in range(40)]
        batch = await replicas[0].spend("other", 10, 64, tolerance(10))
        after = await replicas[1].spend("other", 10, 1, tolerance(10))
        for each in replicas:
            await each.close()
        assert batch == 0
        assert after is not None and 5 < after <= 5.5
        return waits

    with RedisProcess(tmp_path) as server:
        waits = asyncio.run(scenario())
        at_once = next(number for number, wait in enumerate(waits) if wait)
        assert 20 <= at_once <= 25, "20 at once, and those that were paid off meanwhile"
        assert 0 < server.client.pttl("taugate:rate:1:app") <= 1100


def test_implausible_redis_value_is_ignored(tmp_path: Path) -> None:
    async def spend() -> float | None:
        rates = SharedRates(server.url, TIMEOUT)
        wait = await rates.spend("app", 10, 1, tolerance(10))
        await rates.close()
        return wait

    with RedisProcess(tmp_path) as server:
        for left in (str(time.time() + 1e6), "-1", "nonsense", "nan", "inf", ""):
            server.client.set("taugate:rate:1:app", left)
            assert asyncio.run(spend()) == 0
        server.client.delete("taugate:rate:1:app")
        server.client.rpush("taugate:rate:1:app", "a list")
        assert asyncio.run(spend()) is None


def test_hung_redis_is_bypassed_and_recovers(tmp_path: Path) -> None:
    async def scenario() -> None:
        rates = SharedRates(server.url, TIMEOUT)
        assert await rates.spend("app", 5, 1, tolerance(5)) == 0
        server.pause()
        began = time.perf_counter()
        assert [await rates.spend("app", 5, 1, tolerance(5)) for _ in range(50)] == [None] * 50
        assert time.perf_counter() - began < at_most(2 * TIMEOUT), "one waits for it, and the rest do without"
        server.resume()
        async with asyncio.timeout(60):
            while await rates.spend("app", 5, 1, tolerance(5)) is None:
                await asyncio.sleep(0.05)
        await rates.close()

    with RedisProcess(tmp_path) as server:
        asyncio.run(scenario())


def test_services_survive_killed_redis(releases: Path, tmp_path: Path) -> None:
    keys = write(tmp_path / "keys.json", [entry(APP, "app", "search", "metrics", queries_per_second=SLOW)])
    with RedisProcess(tmp_path) as server:
        settings = {
            "TAUGATE_KEYS_FILE": str(keys),
            "TAUGATE_REDIS_URL": server.url,
            "TAUGATE_REDIS_TIMEOUT_MS": str(round(TIMEOUT * 1000)),
        }
        with ServiceProcess(releases, **settings) as one, ServiceProcess(releases, **settings) as two:

            def ask(service: ServiceProcess) -> int:
                reply = service.http.post("/search", json={"query": "permit"}, headers=bearer(APP))
                if reply.status_code == 429:
                    assert reply.json()["error"]["code"] == "rate_limited"
                    assert 90 <= int(reply.headers["Retry-After"]) <= 100
                return reply.status_code

            one.ready(), two.ready()
            assert [ask(one), ask(two), ask(one)] == [200, 429, 429]
            server.kill()
            # Each decides by itself now: one query, and no more.
            assert [ask(one), ask(two), ask(one), ask(two)] == [200, 200, 429, 429]
            text = one.http.get("/metrics", headers=bearer(APP)).text
            assert 'taugate_refused_total{reason="rate_limited"} 2.0' in text
