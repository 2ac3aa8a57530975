"""What every reply has: its id, its log line, HEAD beside GET, its description, and pages for browsers."""

import asyncio
import base64
import hashlib
import json
import logging
import math
import re
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

import httpx
import orjson
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from playwright.sync_api import Browser

from taugate.service.api.pages import api_page
from taugate.service.app import create_app, openapi_document
from taugate.service.http import exchange
from taugate.service.http.exchange import Caller, RequestLog
from taugate.service.metrics import Metrics
from taugate.service.runtime.logs import CompletedRequest
from taugate.service.settings import Settings
from tests.browser import cut_off, opened, violations
from tests.service.access.files import APP, ENTRIES, OPS, SCRAPER, bearer, write
from tests.service.inprocess import until
from tests.service.process.wire import connected, rest
from tests.service_process import ServiceProcess

_PUBLIC = ("/livez", "/readyz", "/openapi.json", "/playground", "/playground/app.css", "/playground/app.js")
_SCOPED = {"/metrics": SCRAPER, "/release": APP, "/release/reference": APP}
_CHANGING = {"date", "x-request-id"}


def _headers(reply: httpx.Response, changing: set[str] = _CHANGING) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if name not in changing}


def test_tested_paths_cover_all_get_paths(keyed: ServiceProcess) -> None:
    described = keyed.http.get("/openapi.json").json()["paths"]
    paths = {path for path, operations in described.items() if "get" in operations} | {"/openapi.json"}
    assert paths - {"/gate/golden"} == {*_PUBLIC, *_SCOPED}  # tests/service/gate has a release with golden questions


@pytest.mark.parametrize("path", [*_PUBLIC, *_SCOPED])
def test_head_equals_get_without_body(keyed: ServiceProcess, path: str) -> None:
    headers = bearer(_SCOPED[path]) if path in _SCOPED else {}
    get, head = (keyed.http.request(method, path, headers=headers) for method in ("GET", "HEAD"))
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0
    changing = _CHANGING | ({"content-length"} if path == "/metrics" else set())  # it counts what has been asked
    assert _headers(head, changing) == _headers(get, changing)


@pytest.mark.parametrize("path", [*_SCOPED, "/search", "/nothing", "/admin/nothing"])
@pytest.mark.parametrize("headers", [{}, bearer(OPS), bearer("unknown")], ids=["no key", "other scope", "unknown key"])
def test_head_without_key_is_refused(keyed: ServiceProcess, path: str, headers: dict[str, str]) -> None:
    get, head = (keyed.http.request(method, path, headers=headers) for method in ("GET", "HEAD"))
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert _headers(head, {*_CHANGING, "content-length"}) == _headers(get, {*_CHANGING, "content-length"})


@pytest.mark.parametrize("path", ["/livez", "/openapi.json", "/playground/app.js"])
@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS"])
def test_allow_header_lists_head(keyed: ServiceProcess, method: str, path: str) -> None:
    reply = keyed.http.request(method, path)
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, HEAD")


def test_allow_header_of_post_omits_head(keyed: ServiceProcess) -> None:
    for method in ("GET", "HEAD"):
        reply = keyed.http.request(method, "/search", headers=bearer(APP))
        assert (reply.status_code, reply.headers["allow"]) == (405, "POST")


def test_head_of_unchanged_file_is_304(keyed: ServiceProcess) -> None:
    tag = keyed.http.head("/playground").headers["etag"]
    assert keyed.http.head("/playground", headers={"If-None-Match": tag}).status_code == 304


def test_head_keeps_connection_usable(keyed: ServiceProcess) -> None:
    """Bytes of a body would be taken for the next reply."""
    one = b" /livez HTTP/1.1\r\nHost: localhost\r\n"
    with connected(keyed, b"HEAD" + one + b"\r\nGET" + one + b"Connection: close\r\n\r\n") as connection:
        head, get = rest(connection)[0].split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert head.endswith(b"\r\n\r\n")
    assert get.endswith(b'{"status":"alive"}')


def test_head_is_counted_by_route(keyed: ServiceProcess) -> None:
    def count() -> float:
        return keyed.metrics(**bearer(SCRAPER)).get('taugate_requests_total{code="200",route="/livez"}', 0)

    before = count()
    keyed.http.head("/livez")
    assert count() == before + 1


HOSTILE = [
    b"",
    b"two words",
    b"tab\there",
    b"x" * 65,
    b'quo"te',
    b"semi;colon",
    b"a/b",
    b"%0a",
    b"{}",
    b"next\x85line",
    "å".encode(),
]


@pytest.mark.parametrize("given", ["a", "0af7651916cd43dd8448eb211c80319c", "A-b_c.9", "x" * 64])
@pytest.mark.parametrize("path", ["/livez", "/nope"])
def test_valid_request_id_is_returned(service: ServiceProcess, path: str, given: str) -> None:
    reply = service.http.get(path, headers={"X-Request-ID": given})
    assert reply.headers["X-Request-ID"] == given
    if reply.is_error:
        assert reply.json()["error"]["request_id"] == given


@pytest.mark.parametrize("given", HOSTILE)
def test_hostile_request_id_is_replaced(service: ServiceProcess, given: bytes) -> None:
    reply = service.http.get("/nope", headers={b"X-Request-ID": given})
    assert re.fullmatch("[0-9a-f]{32}", reply.headers["X-Request-ID"])
    assert reply.json()["error"]["request_id"] == reply.headers["X-Request-ID"]


def test_missing_request_id_is_generated(service: ServiceProcess) -> None:
    replies = [service.http.post("/search", json={"query": "permit"}) for _ in range(5)]
    assert len({reply.headers["X-Request-ID"] for reply in replies}) == 5


def _fields(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if record.getMessage() == message]  # type: ignore[attr-defined]


def test_sampled_log_counts_suppressed_requests(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "taugate.service.http.exchange")
    monkeypatch.setattr(exchange, "_SAMPLE_SECONDS", 0.5)
    metrics = Metrics()
    log = RequestLog(metrics, None)

    def add(status: int, *, authorized: bool) -> None:
        log.add(Caller("a", {}, authorized=authorized), CompletedRequest("a", "GET", "unmatched", status), 0.001)

    async def run() -> None:
        for _ in range(20):
            for status in (401, 404):
                add(status, authorized=False)
            for status in (200, 422):
                add(status, authorized=True)
        lines = [line["status"] for line in _fields(caplog, "request")]
        assert (lines.count(200), lines.count(422)) == (20, 20)
        assert (lines.count(401), lines.count(404)) == (1, 1)
        await until(lambda: _summed_up(caplog, 2))
        left_out = {line["status"]: line["left_out"] for line in _fields(caplog, "unauthenticated requests suppressed")}
        assert left_out == {401: 19, 404: 19}
        caplog.clear()
        add(401, authorized=False)
        assert len(_fields(caplog, "request")) == 1

    asyncio.run(run())
    assert metrics.requests.labels("unmatched", "401")._value.get() == 21


async def _summed_up(caplog: pytest.LogCaptureFixture, lines: int) -> bool:
    return len(_fields(caplog, "unauthenticated requests suppressed")) == lines


@pytest.mark.slow
def test_unauthenticated_requests_are_sampled(releases: Path, tmp_path: Path) -> None:
    keys = write(tmp_path / "keys.json", ENTRIES)
    began = time.monotonic()
    with ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys)) as service:
        http = service.ready().http
        for _ in range(50):
            for path in ("/search", "/nope", "/livez", "/openapi.json"):
                http.get(path)
        for _ in range(10):
            http.post("/search", json={"query": ""}, headers=bearer(APP))
        seconds = time.monotonic() - began
        _, log = service.stop()
    lines = [json.loads(line) for line in log.splitlines()]
    requests = [line for line in lines if line["message"] == "request"]
    assert len([line for line in requests if line["status"] == 422]) == 10
    strangers = [line for line in requests if "key" not in line]
    # Kinds: the four, and /readyz before and after it is ready. So many seconds by the clock were begun at most.
    assert len(strangers) <= 6 * (math.floor(seconds) + 2) < 200


COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_committed_openapi_is_current() -> None:
    assert orjson.loads(COMMITTED.read_bytes()) == openapi_document(), "the API changed; run: make openapi"


def test_error_descriptions_ignore_python_version() -> None:
    """The phrases of Python's HTTPStatus are not: 3.13 calls 413 "Content Too Large"."""
    phrases = {status.phrase for status in HTTPStatus if status >= 400} | {"Content Too Large", "Unprocessable Content"}
    for path in openapi_document()["paths"].values():
        for operation in path.values():
            assert phrases.isdisjoint(reply["description"] for reply in operation["responses"].values())


def test_operations_have_unique_short_names() -> None:
    operations = [operation for path in openapi_document()["paths"].values() for operation in path.values()]
    assert {operation["operationId"] for operation in operations} == {
        *(
            "search",
            "search_batch",
            "gate",
            "gate_batch",
            "golden",
            "golden_check",
            "explain",
            "feedback",
            "reload",
            "livez",
            "readyz",
            "release",
            "reference",
        ),
        *("metrics", "playground", "playground_style", "playground_script"),
    }


def test_dialect_schemas_have_configured_limits() -> None:
    settings = Settings(releases=Path("releases"), dialects="openai,dify", max_query_chars=77, max_batch=5, max_k=9)
    schemas = create_app(settings).openapi()["components"]["schemas"]
    one, several = schemas["VectorStoreQuery"]["properties"]["query"]["anyOf"]
    assert (one["maxLength"], several["maxItems"], several["items"]["maxLength"]) == (77, 5, 77)
    assert schemas["DifyQuery"]["properties"]["query"]["maxLength"] == 77
    assert schemas["RetrievalSetting"]["properties"]["top_k"]["anyOf"][0]["maximum"] == 9


def test_limit_without_field_is_500(monkeypatch: pytest.MonkeyPatch) -> None:
    described = FastAPI.openapi

    def without_k(app: FastAPI) -> dict[str, Any]:
        document = described(app)
        del document["components"]["schemas"]["SearchRequest"]["properties"]["k"]
        return document

    monkeypatch.setattr(FastAPI, "openapi", without_k)
    app = create_app(Settings(releases=Path("releases")))

    with pytest.raises(KeyError, match="k"):
        app.openapi()

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            return await asyncio.wait_for(http.get("/openapi.json"), 30)

    assert asyncio.run(ask()).status_code == 500


def test_openapi_is_serialized_once() -> None:
    app = create_app(Settings(releases=Path("releases")))
    describe, written = app.openapi, 0

    def count() -> dict[str, Any]:
        nonlocal written
        written += 1
        return describe()

    app.openapi = count  # type: ignore[method-assign]

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            return [
                *await asyncio.gather(*(http.get("/openapi.json") for _ in range(4))),
                await http.get("/openapi.json"),
            ]

    replies = asyncio.run(ask())
    assert [reply.json() == openapi_document() for reply in replies] == [True] * 5
    assert written == 1


HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def closed(releases: Path) -> TestClient:
    """A client of a service whose playground is off."""
    return TestClient(create_app(Settings(releases=releases, playground="off")), base_url="http://127.0.0.1")


def test_browser_at_root_is_led_to_playground(service: ServiceProcess) -> None:
    reply = service.http.get("/", headers=HTML)
    assert (reply.status_code, reply.headers["location"]) == (307, "playground")
    assert service.http.get("/", headers=HTML, follow_redirects=True).text.startswith("<!doctype html>")


def test_browser_at_root_without_playground_gets_page(releases: Path) -> None:
    reply = closed(releases).get("/", headers=HTML)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert reply.text.count("<p>") == 3 and 'href="docs"' in reply.text


def test_program_at_root_gets_error_that_names_the_paths(service: ServiceProcess) -> None:
    reply = service.http.get("/")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
    assert "/docs and /openapi.json list all paths" in reply.json()["error"]["message"]


def test_page_describes_every_operation_and_field() -> None:
    document = openapi_document()
    page = api_page(document)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert f'<h3 id="{operation["operationId"]}">{method.upper()} {path}</h3>' in page
    for name, schema in document["components"]["schemas"].items():
        assert f'<h3 id="{name}">' in page
        assert all(f'<th scope="row"><code>{field}</code></th>' in page for field in schema.get("properties", ()))
    targets, ids = re.findall(r'href="#([^"]+)"', page), re.findall(r' id="([^"]+)"', page)
    assert {*targets} <= {*ids} and len(ids) == len({*ids})


def test_page_loads_and_runs_nothing(service: ServiceProcess) -> None:
    reply = service.http.get("/docs")
    policy = reply.headers["content-security-policy"]
    style = reply.text.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; ") and "unsafe" not in policy
    assert "<script" not in reply.text and " style=" not in reply.text


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1280, "dark")])
def test_page_passes_axe_and_fits_its_window(
    browser: Browser, service: ServiceProcess, scheme: Literal["light", "dark"], width: int
) -> None:
    with opened(browser, f"http://127.0.0.1:{service.port}/docs", width=width, scheme=scheme) as page:
        assert violations(page) == []
        assert cut_off(page) == []
