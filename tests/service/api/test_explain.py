"""POST /explain agrees with /search; queries of disconnected clients are not encoded."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from fastapi import FastAPI

from taugate.retrieval.explanation import explain
from taugate.retrieval.query import Explanation
from taugate.retrieval.reader import Release
from taugate.service.api.search import ExplainResponse
from taugate.service.pipeline import search
from tests.service.access.files import APP, JUDGE, SLOW, WITHIN, bearer
from tests.service.inprocess import PATIENCE, Gated, depth_is, until, with_gate
from tests.service.test_metrics import moved
from tests.service_process import ServiceProcess

QUERY = "What does a building permit cost?"


@pytest.fixture(scope="module")
def service(releases: Path) -> Iterator[ServiceProcess]:
    """One that has had no other traffic."""
    with ServiceProcess(releases) as process:
        yield process.ready()


def ask(service: ServiceProcess, document_id: str, key: str | None = None, **fields: Any) -> httpx.Response:
    body = {"query": QUERY, "document_id": document_id, **fields}
    return service.http.post("/explain", json=body, headers={} if key is None else bearer(key))


def of_category(release: Release, category: str, *, same: bool) -> str:
    return next(each.id for each in release.documents if (each.metadata["category"] == category) == same)


def test_explain_agrees_with_search(service: ServiceProcess) -> None:
    for fields in ({}, {"k": 3, "min_results": 2}, {"threshold": 0.4}, {"filter": {"category": "bygglov"}, "k": 8}):
        kept = service.http.post("/search", json={"query": QUERY, **fields}).json()
        every = {"threshold": -2.0, "k": 30, "min_results": 0}
        whole = service.http.post("/search", json={"query": QUERY, **fields, **every}).json()
        shown = {result["id"]: result for result in kept["results"]}
        for result in whole["results"][:12]:
            reply = ask(service, result["id"], **fields)
            ExplainResponse.model_validate_json(reply.content, strict=True)
            said = reply.json()
            for name in ("id", "document_id", "rank", "score"):
                assert said[name] == result[name]
            assert said["relevance"] == pytest.approx(result["relevance"], abs=1e-6)
            assert (said["threshold"], said["policy"]) == (kept["threshold"], kept["policy"])
            assert said["kept"] == (result["id"] in shown)
            assert (said["filtered"], said["release"]) == (False, kept["release"])
            below = said["kept"] and shown[result["id"]]["below_threshold"]
            assert (said["rule"] == "min_results") == below


def test_unknown_document_is_404(service: ServiceProcess) -> None:
    reply = ask(service, "nowhere")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
    assert reply.json()["error"]["message"] == "document_id: the release has no document with the id 'nowhere'"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"k": 1000}, "TAUGATE_MAX_K"),
        ({"query": " "}, "query"),
        ({"document_id": ""}, "document_id"),
        ({"document_id": 7}, "document_id"),
        ({"filter": {"nowhere": 1}}, "filter: no document has the field"),
        ({"include_text": False}, "include_text"),
    ],
)
def test_unsupported_explain_field_is_422(service: ServiceProcess, fields: dict[str, Any], named: str) -> None:
    reply = service.http.post("/explain", json={"query": QUERY, "document_id": "x", **fields})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid")
    assert named in reply.json()["error"]["message"]


def test_explain_is_not_counted_as_traffic(service: ServiceProcess, release: Release) -> None:
    """Neither results nor caches, drift or encoding count it; its own stage does."""
    body = {"query": "explained for the first time", "document_id": release.documents[0].id}
    assert moved(service, "/explain", body) == {
        "requests_total{/explain,200}": 1,
        "request_duration_seconds_count{/explain}": 1,
        "stage_duration_seconds_count{explain}": 1,
    }


def test_explain_needs_search_scope(keyed: ServiceProcess, release: Release) -> None:
    name = release.documents[0].id
    assert [ask(keyed, name, key).status_code for key in (None, JUDGE, APP)] == [401, 403, 200]


def test_explain_is_charged_to_rate(keyed: ServiceProcess, release: Release) -> None:
    statuses = [ask(keyed, release.documents[0].id, SLOW).status_code for _ in range(2)]
    assert statuses == [200, 429]


def test_explain_reveals_nothing_outside_filter(keyed: ServiceProcess, release: Release) -> None:
    hidden, seen = (of_category(release, "bygglov", same=same) for same in (False, True))
    nothing = {"rank", "ranked", "score", "relevance", "compared", "threshold", "truncated", "id"}
    for fields in ({}, {"filter": {"category": "bygglov"}}, {"threshold": -2.0, "k": 50, "min_results": 50}):
        said = ask(keyed, hidden, WITHIN, **fields).json()
        assert {said[name] for name in nothing} == {None}
        assert (said["rule"], said["filtered"], said["kept"]) == ("key_filter", True, False)
        assert (said["document_id"], said["why"]) == (hidden, "The filter of the API key hides it.")
    inside = ask(keyed, seen, WITHIN).json()
    same = service_reply(keyed, seen, filter={"category": "bygglov"})
    assert {name: inside[name] for name in ("rank", "ranked", "score")} == {
        name: same[name] for name in ("rank", "ranked", "score")
    }
    left_out = service_reply(keyed, seen, filter={"category": "nobody"})
    assert (left_out["rule"], left_out["filtered"]) == ("filter", True)
    assert "'category'" in left_out["why"]


def service_reply(service: ServiceProcess, document_id: str, **fields: Any) -> dict[str, Any]:
    return dict(ask(service, document_id, APP, **fields).json())


def test_explanations_do_not_fill_queue(releases: Path, release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()

    def slow(*arguments: Any) -> Explanation:
        assert held.wait(PATIENCE)
        return explain(*arguments)

    monkeypatch.setattr(search, "explain_stages", slow)

    async def scenario(http: httpx.AsyncClient, retriever: Gated, app: FastAPI) -> None:
        retriever.gate.set()
        body = {"query": QUERY, "document_id": release.documents[0].id}
        asked = [asyncio.create_task(http.post("/explain", json=body)) for _ in range(12)]
        await until(lambda: depth_is(http, 8))
        try:
            assert (await http.post("/search", json={"query": QUERY})).status_code == 200
        finally:
            held.set()
        assert sorted([(await each).status_code for each in asked]) == [200] * 8 + [429] * 4
        assert (await http.post("/explain", json=body)).status_code == 200

    with_gate(releases, scenario, deadline_ms=1000 * PATIENCE)


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
