"""Queries that arrive during a batch form the next one; none waits without need, and none is lost."""

import ast
import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from taugate.retrieval.query import Query
from taugate.service.errors import NotReady
from taugate.service.pipeline import queue
from taugate.service.pipeline.queue import SearchQueue
from taugate.service.pipeline.search import SearchPipeline
from tests.service.inprocess import Gated, depth, depth_is, until, with_gate
from tests.service.pipeline.scripted import PATIENCE, Item, Script

Scenario = Callable[[Script, SearchPipeline], Awaitable[None]]


async def ask(pipeline: SearchPipeline, items: Sequence[Item]) -> list[int]:
    return await asyncio.gather(*(item.ask(pipeline) for item in items))


def ones(*numbers: int) -> list[Item]:
    """Queries of one length."""
    return [Item(number) for number in numbers]


def run(scenario: Scenario, max_tokens: int = 100, workers: int = 1, *, packed: bool = False) -> Script:
    script = Script()

    async def body() -> None:
        pipeline = script.pipeline(workers=workers, max_tokens=max_tokens, packed=packed)
        try:
            await scenario(script, pipeline)
        finally:
            script.open()
            await asyncio.to_thread(pipeline.close)

    asyncio.run(asyncio.wait_for(body(), 3 * PATIENCE))
    return script


def behind_the_first(items: Sequence[Item], max_tokens: int = 100, *, packed: bool = False) -> list[list[int]]:
    """Batches of queries that arrive, in this order, while another is at work."""

    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        first = asyncio.create_task(ask(pipeline, ones(1)))
        await script.busy()
        others = asyncio.create_task(ask(pipeline, items))
        await asyncio.sleep(0)
        script.open()
        assert await others == [item.number**2 for item in items]
        assert await first == [1]

    batches = run(scenario, max_tokens, packed=packed).numbers()
    assert batches[0] == [1]
    return batches[1:]


def test_queries_arriving_meanwhile_form_one_batch() -> None:
    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        first = asyncio.create_task(ask(pipeline, ones(1)))
        await script.busy()
        others = [asyncio.create_task(ask(pipeline, ones(n, n + 1))) for n in (2, 4, 6)]
        await asyncio.sleep(0)
        script.open()
        assert await first == [1]
        assert [await each for each in others] == [[4, 9], [16, 25], [36, 49]]

    assert run(scenario).numbers() == [[1], [2, 3, 4, 5, 6, 7]]


def test_batch_is_limited_by_tokens() -> None:
    assert behind_the_first([Item(n, 4) for n in (5, 3, 8, 2, 6)], max_tokens=10) == [[5, 3], [8, 2], [6]]


def test_long_query_is_its_own_batch() -> None:
    assert behind_the_first([Item(2, 30), Item(3, 30)], max_tokens=10) == [[2], [3]]


def test_batches_have_one_length() -> None:
    items = [Item(2, 20), Item(3, 30), Item(4, 20), Item(5, 10), Item(6, 30), Item(7, 20)]
    assert behind_the_first(items) == [[2, 4, 7], [3, 6], [5]]


def test_packed_batch_has_queries_of_any_lengths_in_order() -> None:
    items = [Item(2, 20), Item(3, 30), Item(4, None), Item(5, 45), Item(6, 10), Item(7, 1)]
    assert behind_the_first(items, packed=True) == [[2, 3, 5], [6, 7]], "at most 100 tokens; one needs no encoding"


@pytest.mark.parametrize(
    ("packed", "expected"),
    [(True, [[3, 4, 5], [6], [7]]), (False, [[3, 4, 5, 6, 7]])],
    ids=["⌈5 / 2⌉, ⌈2 / 2⌉ and ⌈1 / 2⌉", "all of one length"],
)
def test_worker_leaves_share_to_others_if_packed(packed: bool, expected: list[list[int]]) -> None:
    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        first = asyncio.create_task(ask(pipeline, ones(1)))
        await script.busy()
        second = asyncio.create_task(ask(pipeline, ones(2)))
        await script.busy()
        others = asyncio.create_task(ask(pipeline, ones(3, 4, 5, 6, 7)))
        while pipeline._queue._arrived.qsize() < 5:
            await asyncio.sleep(0)
        script.open()
        assert await asyncio.gather(first, second, others) == [[1], [4], [9, 16, 25, 36, 49]]

    batches = run(scenario, workers=2, packed=packed).numbers()
    assert batches[2:] == expected


def test_small_group_is_not_starved() -> None:
    assert behind_the_first([Item(2, 8), Item(3, 8), Item(4, 8), Item(5, 7)], max_tokens=10) == [[2], [5], [3], [4]]


def test_idle_worker_takes_query_at_once() -> None:
    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        script.open()
        for number in range(5):
            assert await ask(pipeline, ones(number)) == [number**2]

    assert run(scenario).numbers() == [[0], [1], [2], [3], [4]]


def test_workers_take_separate_batches() -> None:
    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        first = asyncio.create_task(ask(pipeline, ones(1)))
        await script.busy()
        second = asyncio.create_task(ask(pipeline, ones(2)))
        await script.busy()
        third = asyncio.create_task(ask(pipeline, ones(3)))
        await asyncio.sleep(0)
        script.open()
        assert [await each for each in (first, second, third)] == [[1], [4], [9]]
        while pipeline._busy:  # they deliver their results a moment before they are idle
            await asyncio.sleep(0)
        assert await ask(pipeline, ones(4)) == [16]
        assert await ask(pipeline, [Item(5), Item(6, 2)]) == [25, 36]

    script = run(scenario, workers=2)
    assert script.numbers()[:3] == [[1], [2], [3]]
    assert script.alone[:2] == [True, False]
    assert script.alone[3], "all were idle when the fourth came"


@pytest.mark.parametrize("stage", ["encode", "search"])
def test_error_reaches_only_its_batch(stage: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        both = [asyncio.create_task(ask(pipeline, [Item(n, fate=stage)] * 2)) for n in (1, 2)]
        script.open()
        for each in both:
            with pytest.raises(RuntimeError, match="broken"):
                await each
        assert await ask(pipeline, ones(3)) == [9]

    run(scenario)
    assert "never retrieved" not in caplog.text


def test_closing_finishes_batch_and_fails_waiting_queries() -> None:
    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        first, waiting = asyncio.create_task(ask(pipeline, ones(1))), asyncio.create_task(ask(pipeline, ones(2)))
        await script.busy()
        closing = asyncio.create_task(asyncio.to_thread(pipeline.close))
        await asyncio.sleep(0.05)
        assert not closing.done()
        script.open()
        await closing
        assert await first == [1]
        with pytest.raises(NotReady, match="shutting down"):
            await waiting

    assert run(scenario, max_tokens=1).numbers() == [[1]]


THREADS, EACH, MOST = 8, 500, 7


def test_queries_are_searched_once() -> None:
    done: list[Any] = []
    sizes: list[int] = []
    working = threading.Lock()
    encoded = SearchQueue(MOST)

    def search(thread: int) -> None:
        for number in range(EACH):
            queries: list[Any] = [thread * EACH + number]
            for group in encoded.drain(queries):
                assert working.acquire(blocking=False), "two at work"
                done.extend(group)
                sizes.append(len(group))
                working.release()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(search, range(THREADS)))
    assert sorted(done) == list(range(THREADS * EACH))
    assert max(sizes) <= MOST


def test_draining_thread_takes_queries_of_others() -> None:
    entered, go_on = threading.Event(), threading.Event()
    groups: list[tuple[str, list[Any]]] = []
    encoded = SearchQueue(10)

    def search(queries: list[Any]) -> None:
        for group in encoded.drain(queries):
            groups.append((threading.current_thread().name, [*group]))
            entered.set()
            assert go_on.wait(10)

    first = threading.Thread(target=search, args=([1],), name="first")
    first.start()
    assert entered.wait(10)
    search([2, 3])
    search([4])
    assert groups == [("first", [1])], "returned without waiting"
    go_on.set()
    first.join(10)
    assert groups == [("first", [1]), ("first", [2, 3, 4])]


async def _queued() -> queue.QueuedQuery:
    return queue.QueuedQuery(Query("a", 1), None, lambda *_: None)  # type: ignore[arg-type, return-value]  # not called


def test_queued_query_cannot_be_changed() -> None:
    queued = asyncio.run(_queued())
    with pytest.raises(FrozenInstanceError):
        queued.vector = None  # type: ignore[misc]


def test_queues_know_no_reply_form() -> None:
    imported = [
        (getattr(node, "module", ""), name.name)
        for node in ast.walk(ast.parse(inspect.getsource(queue)))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    ]
    ours = [name for name in imported if "taugate.service.pipeline" in ".".join(name)]
    assert ours == [("taugate.service.pipeline.record", "SearchRecord")]


QUERY = {"query": "permit"}


def check(reply: httpx.Response, status: int, code: str) -> None:
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert reply.json()["error"]["request_id"] == reply.headers["X-Request-ID"]


def test_full_queue_refuses_at_once(releases: Path) -> None:
    async def scenario(http: httpx.AsyncClient, retriever: Gated, app: FastAPI) -> None:
        first = asyncio.create_task(http.post("/search/batch", json={"queries": ["permit", "fence"]}))
        await until(lambda: depth_is(http, 2))
        over = await http.post("/search/batch", json={"queries": ["roof", "wall"]})
        check(over, 429, "overloaded")
        assert int(over.headers["Retry-After"]) >= 1
        assert await depth(http) == 2
        last = asyncio.create_task(http.post("/search", json={"query": "garage"}))
        await until(lambda: depth_is(http, 3))
        check(await http.post("/search", json={"query": "shed"}), 429, "overloaded")
        assert not first.done()  # the gate is still closed: the refusals waited for nothing
        retriever.gate.set()
        assert [(await first).status_code, (await last).status_code] == [200, 200]
        await until(lambda: depth_is(http, 0))
        assert len(retriever.seen) == 3

    with_gate(releases, scenario, queue_limit=3, max_batch=3)


def test_deadline_ends_waiting_queries(releases: Path) -> None:
    async def scenario(http: httpx.AsyncClient, retriever: Gated, app: FastAPI) -> None:
        at_work = asyncio.create_task(http.post("/search", json=QUERY))
        await until(lambda: depth_is(http, 1))
        waiting = await http.post("/search", json={"query": "never its turn"})
        first = await at_work
        check(first, 504, "deadline_exceeded")
        check(waiting, 504, "deadline_exceeded")
        assert "300 ms" in first.json()["error"]["message"]
        retriever.gate.set()
        await until(lambda: depth_is(http, 0))
        assert retriever.seen == ["permit"]  # who gave up before its turn cost nothing
        assert (await http.post("/search", json=QUERY)).status_code == 200

    with_gate(releases, scenario, deadline_ms=300)


def test_internal_error_hides_details(releases: Path) -> None:
    async def scenario(http: httpx.AsyncClient, retriever: Gated, app: FastAPI) -> None:
        retriever.error = RuntimeError("secret")
        retriever.gate.set()
        for path, body in (("/search", QUERY), ("/search/batch", {"queries": ["permit"] * 3})):
            reply = await http.post(path, json=body)
            check(reply, 500, "internal")
            assert not any(word in reply.text for word in ("secret", "RuntimeError", "Traceback", "permit"))
        await until(lambda: depth_is(http, 0))
        retriever.error = None
        assert (await http.post("/search", json=QUERY)).status_code == 200
        assert 'taugate_requests_total{code="500",route="/search"} 1.0' in (await http.get("/metrics")).text

    with_gate(releases, scenario)
