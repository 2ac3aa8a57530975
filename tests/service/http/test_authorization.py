"""Authorization of every path, before the body is read."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from taugate.service.app import create_app
from taugate.service.http.middleware import Operations
from taugate.service.http.operation import ENDPOINTS, Operation
from taugate.service.settings import Settings
from tests.service.access.files import APP, ENTRIES, JUDGE, OLD, OPS, SCRAPER, bearer, write

PASSED = {200, 404, 405, 503}  # what routes answer while no release is loaded
CLOSED = [
    *[("POST", "/search", APP), ("POST", "/search/batch", APP), ("POST", "/feedback", JUDGE)],
    *[("GET", "/metrics", SCRAPER), ("POST", "/admin/reload", OPS)],
]
OTHERS = {APP, JUDGE, SCRAPER, OPS}
PLAYGROUND = ["/playground", "/playground/app.css", "/playground/app.js"]
OPEN = ["/", "/docs", "/livez", "/readyz", "/openapi.json", *PLAYGROUND]


def app(**settings: Any) -> FastAPI:
    return create_app(Settings(releases=Path("nowhere"), **settings))


@pytest.fixture
def guarded(tmp_path: Path) -> FastAPI:
    return app(keys_file=write(tmp_path / "keys.json", ENTRIES))


def ask(application: FastAPI, method: str, path: str, **more: Any) -> httpx.Response:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.request(method, path, **more)

    return asyncio.run(asked())


def said(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


@pytest.mark.parametrize(("method", "path", "key"), CLOSED)
def test_scope_opens_only_its_paths(guarded: FastAPI, method: str, path: str, key: str) -> None:
    nothing = ask(guarded, method, path)
    assert said(nothing) == (401, "unauthorized")
    assert nothing.headers["WWW-Authenticate"] == "Bearer"
    assert "Authorization: Bearer KEY, or X-API-Key: KEY" in nothing.json()["error"]["message"]
    for other in OTHERS - {key}:
        reply = ask(guarded, method, path, headers=bearer(other))
        assert said(reply) == (403, "forbidden")
        assert "lacks the scope" in reply.json()["error"]["message"]
    for headers in (bearer(key), {"Authorization": f"bearer  {key}"}, {"X-API-Key": key}):
        assert ask(guarded, method, path, headers=headers, json={"query": "a"}).status_code in PASSED | {422}


def test_release_needs_any_key(guarded: FastAPI) -> None:
    assert said(ask(guarded, "GET", "/release")) == (401, "unauthorized")
    for key in OTHERS:
        assert said(ask(guarded, "GET", "/release", headers=bearer(key))) == (503, "not_ready")


@pytest.mark.parametrize("path", OPEN)
def test_public_paths_need_no_key(guarded: FastAPI, path: str) -> None:
    assert ask(guarded, "GET", path).status_code in PASSED


@pytest.mark.parametrize(
    "headers",
    [
        bearer("nobody's"),
        bearer(""),
        bearer(APP + "x"),
        bearer(APP.upper()),
        {"Authorization": APP},
        {"Authorization": f"Basic {APP}"},
        {"X-API-Key": "ü".encode()},
        bearer(ENTRIES[0]["sha256"]),
    ],
)
def test_malformed_key_is_401(guarded: FastAPI, headers: dict[str, Any]) -> None:
    assert said(ask(guarded, "POST", "/search", headers=headers)) == (401, "unauthorized")


def test_expired_key_is_401(guarded: FastAPI) -> None:
    reply = ask(guarded, "POST", "/search", headers=bearer(OLD))
    assert said(reply) == (401, "unauthorized")
    assert "expired" in reply.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/search%0A", "/admin/reload%0A", "/metrics%0A", "/search/", "//search", "/%73earch"])
def test_odd_path_spelling_is_guarded(guarded: FastAPI, path: str) -> None:
    assert ask(guarded, "POST", path, json={"query": "a"}).status_code in (401, 404, 405)  # //search has the path /
    assert ask(guarded, "GET", path).status_code in (401, 404)


def test_unknown_path_is_404_without_key(guarded: FastAPI) -> None:
    assert said(ask(guarded, "GET", "/nope")) == (404, "not_found")


def test_public_endpoints_are_the_open_ones(guarded: FastAPI) -> None:
    assert {endpoint.path for endpoint in ENDPOINTS.values() if endpoint.public} == {*OPEN}
    for path, operations in guarded.openapi()["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == (path not in OPEN)
            assert ("401" in operation["responses"]) == (path not in OPEN)


def test_endpoint_without_operation_fails_at_start() -> None:
    with pytest.raises(LookupError, match=r"differ: .*explain, .*search, search_batch$"):
        Operations([], parts=())
    described = [route for route in app().routes if isinstance(route, Operation)]
    Operations(described, parts=["playground"])
    with pytest.raises(LookupError, match="differ: playground, playground_documents, .*playground_style"):
        Operations(described, parts=())


def test_template_is_matched_as_whole() -> None:
    operations = [route for route in app(dialects="openai").routes if isinstance(route, Operation)]
    table = Operations(operations, parts=["playground", "openai"])
    template = ENDPOINTS["search_vector_store"].path
    for store in ("current", "{vector_store_id}", "%0A"):
        operation, values = table.find(template.format(vector_store_id=store), "POST")
        assert (operation.name, values) == ("search_vector_store", {"vector_store_id": store})
    for path in ("/v1/vector_stores//search", "/v1/vector_stores/a/b/search", "/v1/vector_stores/a/search\n"):
        assert table.find(path, "POST") == (None, {})


def test_refusal_does_not_read_body(guarded: FastAPI) -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was asked for")

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-length", b"1000000000")]
    scope = {"type": "http", "method": "POST", "path": "/search", "query_string": b"", "headers": headers}
    asyncio.run(guarded(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 401


def test_admin_is_closed_without_keys() -> None:
    unguarded = app()
    for method, path, _ in CLOSED:
        reply = ask(unguarded, method, path, json={"query": "a"})
        if path.startswith("/admin"):
            assert said(reply) == (403, "forbidden")
            assert "TAUGATE_KEYS_FILE" in reply.json()["error"]["message"]
        else:
            assert reply.status_code in PASSED | {422}


def test_keys_from_environment_and_file_combine(tmp_path: Path) -> None:
    file = write(tmp_path / "keys.json", ENTRIES[:1])
    both = app(keys_file=file, keys=SecretStr(json.dumps(ENTRIES[1:])))
    for key, path in ((APP, "/search"), (OPS, "/admin/reload")):
        assert ask(both, "POST", path, headers=bearer(key)).status_code not in (401, 403)


def test_empty_key_file_refuses_all(tmp_path: Path) -> None:
    closed = app(keys_file=write(tmp_path / "keys.json", []))
    assert said(ask(closed, "POST", "/search", headers=bearer(APP))) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("method", "path", "headers"), [("GET", "/livez", {}), ("GET", "/nope", {}), ("POST", "/search", {})]
)
def test_every_reply_has_security_headers(guarded: FastAPI, method: str, path: str, headers: dict[str, str]) -> None:
    reply = ask(guarded, method, path, headers=headers | {"Origin": "https://evil.example"})
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["X-Frame-Options"] == "DENY"
    assert reply.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert not [name for name in reply.headers if name.startswith("access-control-") or name == "server"]
