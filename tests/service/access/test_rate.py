"""Rates of keys: bursts and waits in one process, and shared by replicas with one Redis."""

import asyncio
import random
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from taugate.service.access.admission import LocalRates, RateLimiter, tolerance
from taugate.service.access.authorization import ApiKey
from taugate.service.errors import RateLimited
from taugate.service.replicas import SharedRates
from taugate.service.settings import Settings
from tests.pace import at_most
from tests.redis_process import RedisProcess
from tests.service.access.files import APP, api_key, bearer, entry, write
from tests.service_process import ServiceProcess


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def passed(rates: LocalRates, rate: float, queries: int = 1) -> int:
    """How many requests pass at once."""
    return next(number for number in range(10_000) if rates.spend("app", rate, queries) > 0)


@pytest.mark.parametrize(("rate", "at_once"), [(50, 50), (1, 1), (0.25, 1), (2.5, 2)])
def test_burst_of_one_second_passes(rate: float, at_once: int) -> None:
    clock = Clock()
    rates = LocalRates(clock)
    assert passed(rates, rate) == at_once
    clock.now += 1 / rate + 1e-9
    assert passed(rates, rate) == 1
    clock.now += 1000
    assert passed(rates, rate) == at_once


def test_wait_equals_returned_seconds() -> None:
    clock = Clock()
    rates = LocalRates(clock)
    passed(rates, 4)
    wait = rates.spend("app", 4, 1)
    clock.now += wait - 1e-5
    assert rates.spend("app", 4, 1) > 0
    clock.now += 2e-5
    assert rates.spend("app", 4, 1) == 0


def test_batch_passes_and_is_charged() -> None:
    clock = Clock()
    rates = LocalRates(clock)
    assert rates.spend("app", 10, 64) == 0
    assert rates.spend("app", 10, 1) == pytest.approx(5.5)  # 6.4 s paid, .9 s of them may be ahead
    clock.now += 5.5 + 1e-9
    assert rates.spend("app", 10, 64) == 0


def test_rates_are_separate_per_key() -> None:
    rates = LocalRates(Clock())
    assert passed(rates, 3) == 3
    assert rates.spend("other", 3, 1) == 0


def test_rate_bounds_any_interval() -> None:
    clock, rng = Clock(), random.Random(0)  # noqa: S311 (a test's traffic, no secret)
    rates = LocalRates(clock)
    rate, largest = 20.0, 8
    times: list[tuple[float, int]] = []
    for _ in range(20_000):
        clock.now += rng.expovariate(60)
        queries = rng.randint(1, largest)
        if rates.spend("app", rate, queries) == 0:
            times.append((clock.now, queries))
    for start in range(0, len(times), 7):
        total = 0
        for at, queries in times[start:]:
            total += queries
            assert total <= rate * (at - times[start][0]) + rate + largest + 1e-3
    whole = sum(queries for _, queries in times) / (times[-1][0] - times[0][0])
    assert whole == pytest.approx(rate, rel=0.02), "who asks for more all the time gets the rate, no less"


def spending(**settings: float) -> RateLimiter:
    return RateLimiter(Settings(releases=Path("nowhere"), **settings))


async def admitted(of: RateLimiter, key: ApiKey | None) -> int:
    for number in range(1000):
        try:
            await of.charge(key)
        except RateLimited as error:
            assert error.headers == {"Retry-After": "1"}
            return number
    return 1000


@pytest.mark.parametrize(("own", "default", "at_once"), [(None, 0, 1000), (None, 5, 5), (7, 0, 7), (7, 5, 7)], ids=str)
def test_key_rate_overrides_default(own: float | None, default: float, at_once: int) -> None:
    key = api_key("app", queries_per_second=own)
    assert asyncio.run(admitted(spending(queries_per_second=default), key)) == at_once


def test_clients_without_keys_share_rate() -> None:
    assert asyncio.run(admitted(spending(queries_per_second=4), None)) == 4


def test_retry_after_is_rounded_up() -> None:
    assert RateLimited("", 0.01).headers == {"Retry-After": "1"}
    assert RateLimited("", 2.01).headers == {"Retry-After": "3"}


def test_redis_is_unused_without_rate() -> None:
    settings = Settings(releases=Path("nowhere"), redis_url=SecretStr("redis://127.0.0.1:1/0"))
    of = RateLimiter(settings)
    assert asyncio.run(admitted(of, None)) == 1000
    assert of._shared is None


def test_key_over_its_rate_is_refused_before_its_body_is_read() -> None:
    """By a charge of nothing, which refuses as soon as a query would be refused, however long ago the last one was."""
    of, key, other = spending(queries_per_second=0.1), api_key("app"), api_key("other")
    for _ in range(3):
        asyncio.run(of.charge(key, 0))
    asyncio.run(of.charge(key, 64))
    for _ in range(2):
        with pytest.raises(RateLimited) as refused:
            asyncio.run(of.charge(key, 0))
        assert refused.value.headers == {"Retry-After": "640"}
    asyncio.run(of.charge(other, 0))


def test_batch_is_charged_once_by_its_queries(releases: Path, tmp_path: Path) -> None:
    """An invalid one, and one over TAUGATE_MAX_BATCH, costs a query."""
    batches = {
        "one": (["permit"], 1),
        "many": (["permit"] * 20, 20),
        "invalid": ([7], 1),
        "large": (["permit"] * 65, 1),
    }
    keys = write(tmp_path / "keys", [entry(key, key, "search", queries_per_second=0.1) for key in batches])
    with ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys)) as service:
        http = service.ready().http
        for key, (batch, cost) in batches.items():
            http.post("/search/batch", json={"queries": batch}, headers=bearer(key))
            refused = http.post("/search", json={"query": "permit"}, headers=bearer(key))
            assert refused.status_code == 429
            assert 10 * cost - 5 < int(refused.headers["Retry-After"]) <= 10 * cost


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
