"""A full queue refuses at once, the deadline ends waiting, and errors show no details."""

import asyncio
from pathlib import Path

import httpx
from fastapi import FastAPI

from tests.service.inprocess import Gated, depth, depth_is, until, with_gate

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
