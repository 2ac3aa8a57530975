"""A server that answers but is no Redis: its replies count as errors."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from taugate.service import replicas as fleet_module
from taugate.service.access.admission import tolerance
from taugate.service.replicas import Fleet, RedisCache, SharedRates
from tests.faults.redis_proxy import RedisProxy
from tests.redis_process import RedisProcess

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
        store = RedisCache(between.url, 0.5, 60, lambda up: None)
        rates = SharedRates(between.url, 0.5)
        if known:
            assert (await store.get(["a", "b"]))[0] in {"miss", "hit"}
            assert await rates.spend(f"key {answer!r}", 1, 1, tolerance(1)) == 0
        between.answer = answer
        assert await store.get(["a", "b"]) == ("error", [None, None])
        assert await rates.spend("key", 1, 1, tolerance(1)) is None
        store.put({"a": b"1"})
        await asyncio.sleep(0)
        await store.close()
        await rates.close()

    with RedisProxy(redis.port) as between:
        asyncio.run(asyncio.wait_for(ask(), 10))
        fleet = Fleet(between.url, "release", 60)
        assert fleet.find("id", time.time()) is None
        fleet = Fleet(between.url, "release", 60)
        assert fleet.change("state", lambda found: b"mine") is False
        fleet = Fleet(between.url, "release", 60)
        assert isinstance(fleet.count("judgement"), int)
        fleet.close()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path_factory.mktemp("redis")) as server:
        yield server
