"""Queries of disconnected clients are not encoded, and cause no errors for other clients."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import orjson
from fastapi import FastAPI

from tests.service.inprocess import Gated, depth_is, until, with_gate


class Caller:
    """One request to the application, as a server hands it on, and a connection that closes when told to."""

    def __init__(self, text: str) -> None:
        self.body = orjson.dumps({"query": text})
        self.hung_up = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self._given = False

    async def receive(self) -> dict[str, Any]:
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    async def ask(self, app: FastAPI) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(self.body)).encode())]
        scope = {"type": "http", "method": "POST", "path": "/search", "raw_path": b"/search", "headers": headers}
        scope |= {"query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1", "server": ("app", 80)}
        await app(scope, self.receive, self.send)


def test_disconnected_queued_query_is_not_encoded(releases: Path) -> None:
    async def scenario(http: httpx.AsyncClient, retriever: Gated, app: FastAPI) -> None:
        first = asyncio.create_task(http.post("/search", json={"query": "permit"}))
        await until(lambda: depth_is(http, 1))
        caller = Caller("gone before its turn")
        asked = asyncio.create_task(caller.ask(app))
        await until(lambda: depth_is(http, 2))
        caller.hung_up.set()
        await asked
        assert caller.sent[0]["status"] == 499
        retriever.gate.set()
        assert (await first).status_code == 200
        await until(lambda: depth_is(http, 0))
        assert retriever.seen == ["permit"]
        counted = (await http.get("/metrics")).text
        assert 'taugate_requests_total{code="499",route="/search"} 1.0' in counted

    with_gate(releases, scenario)


def test_disconnect_while_encoding_spares_others(releases: Path) -> None:
    async def scenario(http: httpx.AsyncClient, retriever: Gated, app: FastAPI) -> None:
        caller = Caller("gone at work")
        asked = asyncio.create_task(caller.ask(app))
        await until(lambda: depth_is(http, 1))
        other = asyncio.create_task(http.post("/search", json={"query": "permit"}))
        await until(lambda: depth_is(http, 2))
        caller.hung_up.set()
        await asked
        retriever.gate.set()
        assert (await other).status_code == 200
        await until(lambda: depth_is(http, 0))

    with_gate(releases, scenario)


def test_connected_client_gets_reply(releases: Path) -> None:
    async def scenario(http: httpx.AsyncClient, retriever: Gated, app: FastAPI) -> None:
        retriever.gate.set()
        caller = Caller("permit")
        await caller.ask(app)
        assert caller.sent[0]["status"] == 200

    with_gate(releases, scenario)
