"""The real service conforms to its own /openapi.json."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import orjson
import pytest

from taugate.service.app import create_app, openapi_document
from taugate.service.http.operation import ENDPOINTS
from taugate.service.settings import Settings
from tests.service.contract.conformance import KEY, conformance, with_keys
from tests.service.contract.hooks import CODES, KNOWN_FIELD
from tests.service_process import ServiceProcess

FEW = 15  # of each operation and phase: 3,000 requests


@pytest.mark.slow
def test_service_conforms_to_openapi(releases: Path, tmp_path: Path) -> None:
    with ServiceProcess(releases, **with_keys()) as process:
        process.ready()
        found = conformance(f"http://127.0.0.1:{process.port}", tmp_path, FEW, seed=7)
        counted = process.http.get("/metrics", headers={"X-API-Key": KEY}).text
    assert found.clean, found.report
    assert found.cases >= 1000
    assert {*found.phases} == {"examples", "coverage", "fuzzing", "stateful"}
    tried = [("/search", 200), ("/search", 422), ("/search", 401), ("/search/batch", 200), ("/feedback", 202)]
    others = ("search_vector_store", "dify_retrieval", "reference", "playground_script")
    tried += [(ENDPOINTS[name].path, 200) for name in others]
    for route, status in (*tried, ("/admin/reload", 200), ("/admin/reload", 401)):
        assert f'taugate_requests_total{{code="{status}",route="{route}"}}' in counted, "what was meant to be tried"


def test_openapi_contains_configured_limits(releases: Path) -> None:
    settings = Settings(releases=releases, max_k=7, max_batch=3, max_query_chars=40)
    schemas = create_app(settings).openapi()["components"]["schemas"]
    search, batch = schemas["SearchRequest"]["properties"], schemas["BatchRequest"]["properties"]
    assert (search["query"]["anyOf"][0]["maxLength"], search["k"]["anyOf"][0]["maximum"]) == (40, 7)
    assert (search["min_results"]["maximum"], batch["queries"]["maxItems"]) == (7, 3)
    assert batch["queries"]["items"]["anyOf"][0]["maxLength"] == 40


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_metric_formats_are_described(service: ServiceProcess, accept: str) -> None:
    given = service.http.get("/metrics", headers={"Accept": accept}).headers["content-type"].partition(";")[0]
    assert given == accept.partition(";")[0]
    assert given in openapi_document()["paths"]["/metrics"]["get"]["responses"]["200"]["content"]


@pytest.mark.parametrize("written", ["3.0", "3e0", "3"])
def test_integral_float_is_an_integer(service: ServiceProcess, written: str) -> None:
    content = f'{{"query": "permit", "k": {written}, "min_results": {written}, "threshold": 2}}'
    reply = service.http.post("/search", content=content, headers={"Content-Type": "application/json"})
    assert [result["rank"] for result in reply.json()["results"]] == [1, 2, 3]


def test_documented_codes_are_parsed() -> None:
    assert CODES[400] == {"bad_json", "bad_request"}
    assert CODES[429] == {"overloaded", "rate_limited"}
    assert 200 not in CODES


FINDINGS = (
    "Response violates schema",
    "Schema-violating request accepted",
    "Wrong response to undeclared method",
    "an error in another shape",
)


class _Careless(BaseHTTPRequestHandler):
    """Answers everything with an empty object, but its description as it is."""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = orjson.dumps(openapi_document() if self.path == "/openapi.json" else {})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815 (http.server's names)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def careless() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Careless)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_nonconforming_service_is_detected(careless: str, tmp_path: Path) -> None:
    assert httpx.get(f"{careless}/openapi.json").json() == openapi_document()
    found = conformance(careless, tmp_path, 2, 7, "--phases", "coverage", "--include-path", "/search")
    assert not found.clean
    assert not found.errors, found.report
    for finding in FINDINGS:
        assert finding in found.report


def test_generated_filter_field_exists(service: ServiceProcess) -> None:
    reply = service.http.post("/search", json={"query": "permit", "filter": {KNOWN_FIELD: "bygglov"}})
    assert reply.status_code == 200
    assert reply.json()["considered"] > 0
