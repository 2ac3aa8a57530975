"""While the queue is full, a search that would have to wait is refused before anything is awaited."""

import asyncio
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import Response

from tests.service.access.files import APP, bearer, entry, write
from tests.service.inprocess import Gated, depth_is, until, with_gate
from tests.service.process.wire import HEAD, answer, connected, refused
from tests.service_process import ServiceProcess, read_metrics

WAITING, KNOWN, NEW = ({"query": text} for text in ("permit", "fence", "roof"))
KEY = bearer(APP)


def refuse(app: FastAPI, body: object, path: str = "/search", **headers: str) -> Response | None:
    """What the application replies at once to a whole POST request."""
    lines = {"Host": "localhost", "Content-Type": "application/json", **KEY, **headers}
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in lines.items()],
    }
    reply: Response | None = app.state.steps.refuse_at_once(scope, json.dumps(body).encode())
    return reply


def code(reply: Response | None) -> str:
    assert reply is not None
    assert reply.status_code == 429
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert int(reply.headers["retry-after"]) >= 1
    error = json.loads(bytes(reply.body))["error"]
    assert error["request_id"] == reply.headers["x-request-id"]
    return str(error["code"])


async def fill(http: httpx.AsyncClient, retriever: Gated) -> asyncio.Task[httpx.Response]:
    """Have the service know one query, and fill its queue with another one."""
    retriever.gate.set()
    assert (await http.post("/search", json=KNOWN, headers=KEY)).status_code == 200
    retriever.gate.clear()
    waiting = asyncio.create_task(http.post("/search", json=WAITING, headers=KEY))
    await until(lambda: depth_is(http, 1))
    return waiting


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write(tmp_path / "keys.json", [entry(APP, "app", "search", "metrics", queries_per_second=4)])


async def counted(http: httpx.AsyncClient, series: str) -> float:
    return read_metrics((await http.get("/metrics", headers=KEY)).text).get(series, 0)


def test_new_query_is_refused_counted_and_charged(releases: Path, keys: Path) -> None:
    async def scenario(http: httpx.AsyncClient, retriever: Gated, app: FastAPI) -> None:
        http.headers.update(KEY)
        waiting = await fill(http, retriever)
        assert code(refuse(app, NEW, **{"X-Request-ID": "mine"})) == "overloaded"
        assert await counted(http, 'taugate_refused_total{reason="overloaded"}') == 1
        assert await counted(http, 'taugate_requests_total{code="429",route="/search"}') == 1
        codes = [code(refuse(app, NEW)) for _ in range(4)]
        assert codes[-1] == "rate_limited", "the key may send four queries a second"
        assert await depth_is(http, 1)
        retriever.gate.set()
        assert (await waiting).status_code == 200
        await until(lambda: depth_is(http, 0))
        assert refuse(app, NEW) is None
        assert retriever.seen == [KNOWN["query"], WAITING["query"]]

    with_gate(releases, scenario, queue_limit=1, max_batch=1, keys_file=keys)


def test_request_not_surely_refused_takes_usual_way(releases: Path, keys: Path) -> None:
    async def scenario(http: httpx.AsyncClient, retriever: Gated, app: FastAPI) -> None:
        http.headers.update(KEY)
        waiting = await fill(http, retriever)
        before = await counted(http, 'taugate_key_requests_total{key="app"}')
        assert refuse(app, KNOWN) is None
        assert refuse(app, {"query": ""}) is None
        assert refuse(app, NEW, "/search/batch") is None
        assert refuse(app, NEW, "/nothing") is None
        assert refuse(app, NEW, **{"Content-Type": "text/plain"}) is None
        assert refuse(app, NEW, Authorization="Bearer unknown") is None
        assert refuse(app, NEW, Host="evil.example") is None
        assert await counted(http, 'taugate_key_requests_total{key="app"}') == before + 1, "only that of the metrics"
        assert (await http.post("/search", json=KNOWN)).status_code == 200
        retriever.gate.set()
        assert (await waiting).status_code == 200

    with_gate(releases, scenario, queue_limit=1, max_batch=1, keys_file=keys)


@pytest.fixture(scope="module")
def narrow(releases: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(releases, TAUGATE_QUEUE_LIMIT="1", TAUGATE_MAX_BATCH="1") as service:
        yield service.ready()


def at_once(service: ServiceProcess, requests: list[bytes], stack: ExitStack) -> list[socket.socket]:
    """Send requests that the service reads together, because it sleeps until all have been sent."""
    service.process.send_signal(signal.SIGSTOP)
    try:
        return [stack.enter_context(connected(service, request)) for request in requests]
    finally:
        service.process.send_signal(signal.SIGCONT)


def test_connection_is_used_again_after_refusal(narrow: ServiceProcess) -> None:
    def request(number: int) -> bytes:
        body = json.dumps({"query": f"marmalade {number} " * 40}).encode()
        return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body

    before = refused(narrow, "overloaded")
    with ExitStack() as stack:
        clients = at_once(narrow, [request(number) for number in range(20)], stack)
        statuses = [answer(client, b"")[:13] for client in clients]
        assert {*statuses} == {b"HTTP/1.1 200 ", b"HTTP/1.1 429 "}
        assert refused(narrow, "overloaded") == before + statuses.count(b"HTTP/1.1 429 ")
        again = clients[statuses.index(b"HTTP/1.1 429 ")]
        for _ in range(2):
            assert answer(again, request(100)).startswith(b"HTTP/1.1 200 ")


def test_refusals_are_sampled_in_log(releases: Path) -> None:
    with ServiceProcess(releases, TAUGATE_QUEUE_LIMIT="1", TAUGATE_MAX_BATCH="1", TAUGATE_CACHE_BYTES="0") as service:
        service.ready()
        with ExitStack() as stack:
            body = b'{"query": "marmalade"}'
            whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
            clients = at_once(service, [whole] * 100, stack)
            number = [answer(client, b"")[:13] for client in clients].count(b"HTTP/1.1 429 ")
        _, log = service.stop()
    lines = [json.loads(line) for line in log.splitlines()]
    shown = [line for line in lines if line["message"] == "request" and line["status"] == 429]
    assert 0 < len(shown) < number
    left_out = [line["left_out"] for line in lines if line["message"] == "refused requests suppressed"]
    assert len(shown) + sum(left_out) == number
