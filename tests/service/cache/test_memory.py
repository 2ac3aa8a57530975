"""The least recently used values are evicted, and memory stays within the limit."""

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from sys import getsizeof
from uuid import uuid4

import numpy as np
import pytest

from taugate.registry.catalog import find
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from taugate.service.drift.worker_store import WorkerStore
from taugate.service.pipeline.record import SearchForm, SearchRecord, ShownReply, write_body
from taugate.service.pipeline.reply import MemoryCache

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
def reply(releases: Path) -> Callable[[], SearchRecord]:
    """One that was made as the service makes it, and is no other's."""
    release = load(find(releases), 1)
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
