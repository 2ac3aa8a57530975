"""A cached reply equals a computed one, under a new id; memory stays within its limit."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from sys import getsizeof
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from taugate.retrieval.documents.filters import OneOf
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release
from taugate.service.drift.worker_store import WorkerStore
from taugate.service.pipeline.record import SearchForm, SearchRecord, ShownReply, write_body
from taugate.service.pipeline.reply import CacheKeys, MemoryCache
from tests.fake_encoder import DIMENSION
from tests.prometheus_process import until as wait_until
from tests.redis_process import RedisProcess
from tests.service.inprocess import Gated, until, with_gate
from tests.service_process import ServiceProcess, by_label, without_id

QUERY = "What does a building permit cost?"
KNOBS = [
    {},
    {"k": 3},
    {"k": 4},
    {"threshold": 0.1},
    {"threshold": 0.1, "k": 3},
    {"min_results": 2},
    {"include_text": False},
    {"filter": {}},
    {"query": QUERY + " "},
    {"query": QUERY.lower()},
]
FOUND = 4  # of these: with and without an empty filter, and of two other texts


@pytest.fixture(scope="module")
def service(releases: Path) -> Iterator[ServiceProcess]:
    """One that has had no other traffic."""
    with ServiceProcess(releases) as process:
        yield process.ready()


def outcomes(service: ServiceProcess) -> dict[str, float]:
    return by_label(service.metrics(), "taugate_cache_requests_total")


@pytest.fixture(scope="module")
def uncached(releases: Path) -> list[dict[str, object]]:
    """Replies of a service without any cache."""
    with ServiceProcess(releases, TAUGATE_CACHE_BYTES="0") as service:
        service.ready()
        replies = [service.search(**knobs) for knobs in KNOBS for _ in range(2)]
        assert outcomes(service) == {"hit": 0, "miss": 0, "error": 0, "bypass": len(replies)}
    assert len({reply["query_id"] for reply in replies}) == len(replies)
    first, second = ([without_id(reply) for reply in replies[start::2]] for start in (0, 1))
    assert first == second
    return first


def test_every_option_has_own_cache_entry(service: ServiceProcess, uncached: list[dict[str, object]]) -> None:
    first = [service.search(**knobs) for knobs in KNOBS]
    again = [service.search(**knobs) for knobs in KNOBS]
    assert [without_id(reply) for reply in first] == uncached
    assert [without_id(reply) for reply in again] == uncached
    assert len({reply["query_id"] for reply in first + again}) == 2 * len(KNOBS)


def test_batch_computes_only_uncached_queries(service: ServiceProcess) -> None:
    known, new = "known already", "not known yet"
    service.http.post("/search", json={"query": known})
    before = outcomes(service)
    replies = service.http.post("/search/batch", json={"queries": [new, known, new, {"query": known, "k": 2}]}).json()
    after = outcomes(service)
    assert after["miss"] - before["miss"] == 1
    assert after["hit"] - before["hit"] == 3, "known, in flight, and a vector that is known"
    one, two, three, four = replies["responses"]
    assert without_id(one) == without_id(three)
    assert (two["considered"], four["considered"]) == (5, 2)


def test_equal_concurrent_queries_are_encoded_once(releases: Path) -> None:
    async def scenario(http: httpx.AsyncClient, retriever: Gated, app: FastAPI) -> None:
        asked = [asyncio.create_task(http.post("/search", json={"query": QUERY})) for _ in range(5)]

        async def seen() -> bool:
            return bool(retriever.seen)

        await until(seen)
        retriever.gate.set()
        replies = [(await each).json() for each in asked]
        assert retriever.seen == [QUERY]
        assert len({reply["query_id"] for reply in replies}) == 5
        assert len({str(without_id(reply)) for reply in replies}) == 1

    with_gate(releases, scenario, cache_bytes=0)


def test_replicas_share_redis_entries(releases: Path, tmp_path: Path, uncached: list[dict[str, object]]) -> None:
    with RedisProcess(tmp_path) as server:
        with ServiceProcess(releases, TAUGATE_REDIS_URL=server.url, TAUGATE_REDIS_TIMEOUT_MS="500") as one:
            one.ready()
            assert [without_id(one.search(**knobs)) for knobs in KNOBS] == uncached
            texts = len({knobs.get("query", QUERY) for knobs in KNOBS})  # type: ignore[attr-defined]  # JSON or YAML
            # Written in the background. Knobs of the cut share what was found.
            wait_until(lambda: len(list(server.client.scan_iter("*:found:*"))) == FOUND)
            wait_until(lambda: len(list(server.client.scan_iter("*:vector:*"))) == texts)
        keys = [key.decode() for key in server.client.scan_iter()]
        assert all("permit" not in key for key in keys)
        with ServiceProcess(releases, TAUGATE_REDIS_URL=server.url, TAUGATE_REDIS_TIMEOUT_MS="500") as two:
            two.ready()
            assert [without_id(two.search(**knobs)) for knobs in KNOBS] == uncached
            assert outcomes(two)["hit"] == len(KNOBS)
            assert "taugate_redis_up 1.0" in two.http.get("/metrics").text


@pytest.fixture(scope="module")
def shared(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, RedisProcess]]:
    """A service without a cache of its own, and its Redis."""
    settings = {"TAUGATE_REDIS_TIMEOUT_MS": "500", "TAUGATE_CACHE_BYTES": "0"}
    with (
        RedisProcess(tmp_path_factory.mktemp("redis")) as server,
        ServiceProcess(releases, TAUGATE_REDIS_URL=server.url, **settings) as service,
    ):
        yield service.ready(), server


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"abc",
        b'{"results":"<script>"}  ',
        *(np.array(each, dtype=np.int32).tobytes() for each in ([0], [-1] * 5, [10**9] * 5, [0] * 5, [*range(5)])),
        bytes(1 << 16),
    ],
)
def test_invalid_redis_value_is_recomputed(
    shared: tuple[ServiceProcess, RedisProcess], uncached: list[dict[str, object]], value: bytes
) -> None:
    one, server = shared
    server.client.flushdb()
    # On a slow machine the first use of Redis may time out, after which nothing is written for a while: ask again.
    wait_until(
        lambda: without_id(one.search()) == uncached[0] and len(list(server.client.scan_iter("taugate:5:*"))) == 2
    )
    (found,), (vector,) = (list(server.client.scan_iter(f"*:{kind}:*")) for kind in ("found", "vector"))
    server.client.set(found, value)
    assert without_id(one.search()) == uncached[0]
    numbers = [np.full(DIMENSION, number, dtype=np.float32).tobytes() for number in (np.nan, 1e30)]
    unflagged = np.zeros(DIMENSION, dtype=np.float32).tobytes()
    for strange in (b"x", *(each + b"\0" for each in numbers), unflagged, unflagged + b"\4"):
        server.client.set(vector, strange)
        assert without_id(one.search()) == uncached[0]


def test_unreachable_redis_changes_no_reply(releases: Path, uncached: list[dict[str, object]]) -> None:
    with ServiceProcess(releases, TAUGATE_REDIS_URL="redis://:hunter2@127.0.0.1:1/0") as service:
        service.ready()
        assert [without_id(service.search(**knobs)) for knobs in KNOBS] == uncached
        assert outcomes(service)["error"] >= 1
        assert service.metrics()["taugate_redis_up"] == 0
        code, log = service.stop()
    assert code == 0
    assert "hunter2" not in log, "the password"


@pytest.mark.parametrize("kind", ["vector", "retrieved", "reply"])
def test_callers_who_may_see_other_documents_share_no_entry(kind: str) -> None:
    manifest = SimpleNamespace(release_id="20260101T000000Z-0123456789ab")
    keys = CacheKeys(cast(Release, SimpleNamespace(manifest=manifest, precision="float32")))
    callers = [
        Query("q", 5, permitted=permitted) for permitted in ((), (OneOf.of("tenant", "a"),), (OneOf.of("tenant", "b"),))
    ]
    arguments = {"retrieved": (5,), "reply": ("form",)}.get(kind, ())
    assert len({getattr(keys, kind)(query, *arguments) for query in callers}) == len(callers)


KEY = "taugate:5:20261121T212206Z-911c6aa76f09:int8:reply:{:064x}"


def vector(size: int) -> bytes:
    return np.zeros(size, dtype=np.uint8).tobytes()


def test_least_recently_used_is_evicted() -> None:
    memory = MemoryCache(3 * (512 + getsizeof(vector(100))))
    for name in ("a", "b", "c"):
        memory.put(name, vector(100))
    assert memory.get("a") is not None
    memory.put("d", vector(100))
    assert [memory.get(name) is not None for name in ("a", "b", "c", "d")] == [True, False, True, True]


def test_oversized_value_evicts_nothing() -> None:
    memory = MemoryCache(1500)
    first = vector(100)
    memory.put("a", first)
    memory.put("b", vector(1500))
    assert memory.get("a") is first
    assert memory.get("b") is None


def test_zero_bytes_disable_cache() -> None:
    memory = MemoryCache(0)
    memory.put("a", vector(0))
    assert memory.get("a") is None
    assert memory.currsize == 0


@pytest.fixture(scope="module")
def reply(release: Release) -> Callable[[], SearchRecord]:
    """One that was made as the service makes it, and is no other's."""
    query = Query("Do I need a building permit?", 5)
    (answer,) = release.retriever.search([query])
    documents, random = answer.read(release.documents), np.zeros(4, dtype=np.float32)
    form = SearchForm(include_text=False)
    return lambda: SearchRecord.of(query, answer, random, write_body(form, answer, documents, release.manifest))


@pytest.mark.parametrize("kind", ["replies", "short vectors", "long vectors"])
def test_limit_bounds_measured_memory(kind: str, reply: Callable[[], SearchRecord]) -> None:
    limit = 1 << 20
    made = {"replies": reply, "short vectors": lambda: vector(100), "long vectors": lambda: vector(2000)}[kind]
    gc.collect()
    tracemalloc.start()
    try:
        memory = MemoryCache(limit)
        for number in range(2 * limit // getsizeof(made())):
            memory.put(KEY.format(number), made())
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory.currsize <= limit
    assert 0.7 * memory.currsize < used < 1.2 * memory.currsize


def test_expired_reply_frees_its_memory(reply: Callable[[], SearchRecord]) -> None:
    """Nor what the allocator gave to its bytes: orjson asks for four kilobytes, however few it needs."""
    store = WorkerStore(None, "release", seconds=3600)
    store.remember(0.0, {uuid4().hex: ShownReply(reply().results, 0, None, None).pack()})
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(300):
            store.remember(float(number), {uuid4().hex: ShownReply(reply().results, 0, None, None).pack()})
        used, _ = tracemalloc.get_traced_memory()
        kept = [reply() for _ in range(300)]
        more, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 100_000
    assert more - used < 300 * (getsizeof(kept[0]) + 64)
