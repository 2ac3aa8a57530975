"""HEAD replies equal GET replies without the body."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.access.files import APP, ENTRIES, OPS, SCRAPER, bearer, write
from tests.service.process.wire import connected, rest
from tests.service_process import ServiceProcess

_PUBLIC = ("/livez", "/readyz", "/openapi.json", "/playground", "/playground/app.css", "/playground/app.js")
_SCOPED = {"/metrics": SCRAPER, "/release": APP, "/release/reference": APP}
_CHANGING = {"date", "x-request-id"}


@pytest.fixture(scope="module")
def guarded(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service with API keys and the playground."""
    keys = write(tmp_path_factory.mktemp("keys") / "keys.json", ENTRIES)
    with ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys), TAUGATE_PLAYGROUND="on") as service:
        yield service.ready()


def _headers(reply: httpx.Response, changing: set[str] = _CHANGING) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if name not in changing}


def test_tested_paths_cover_all_get_paths(guarded: ServiceProcess) -> None:
    described = guarded.http.get("/openapi.json").json()["paths"]
    paths = {path for path, operations in described.items() if "get" in operations} | {"/openapi.json"}
    assert paths - {"/gate/golden"} == {*_PUBLIC, *_SCOPED}  # tests/service/gate has a release with golden questions


@pytest.mark.parametrize("path", [*_PUBLIC, *_SCOPED])
def test_head_equals_get_without_body(guarded: ServiceProcess, path: str) -> None:
    headers = bearer(_SCOPED[path]) if path in _SCOPED else {}
    get, head = (guarded.http.request(method, path, headers=headers) for method in ("GET", "HEAD"))
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0
    changing = _CHANGING | ({"content-length"} if path == "/metrics" else set())  # it counts what has been asked
    assert _headers(head, changing) == _headers(get, changing)


@pytest.mark.parametrize("path", [*_SCOPED, "/search", "/nothing", "/admin/nothing"])
@pytest.mark.parametrize("headers", [{}, bearer(OPS), bearer("unknown")], ids=["no key", "other scope", "unknown key"])
def test_head_without_key_is_refused(guarded: ServiceProcess, path: str, headers: dict[str, str]) -> None:
    get, head = (guarded.http.request(method, path, headers=headers) for method in ("GET", "HEAD"))
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert _headers(head, {*_CHANGING, "content-length"}) == _headers(get, {*_CHANGING, "content-length"})


@pytest.mark.parametrize("path", ["/livez", "/openapi.json", "/playground/app.js"])
@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS"])
def test_allow_header_lists_head(guarded: ServiceProcess, method: str, path: str) -> None:
    reply = guarded.http.request(method, path)
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, HEAD")


def test_allow_header_of_post_omits_head(guarded: ServiceProcess) -> None:
    for method in ("GET", "HEAD"):
        reply = guarded.http.request(method, "/search", headers=bearer(APP))
        assert (reply.status_code, reply.headers["allow"]) == (405, "POST")


def test_head_of_unchanged_file_is_304(guarded: ServiceProcess) -> None:
    tag = guarded.http.head("/playground").headers["etag"]
    assert guarded.http.head("/playground", headers={"If-None-Match": tag}).status_code == 304


def test_head_keeps_connection_usable(guarded: ServiceProcess) -> None:
    """Bytes of a body would be taken for the next reply."""
    one = b" /livez HTTP/1.1\r\nHost: localhost\r\n"
    with connected(guarded, b"HEAD" + one + b"\r\nGET" + one + b"Connection: close\r\n\r\n") as connection:
        head, get = rest(connection)[0].split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert head.endswith(b"\r\n\r\n")
    assert get.endswith(b'{"status":"alive"}')


def test_head_is_counted_by_route(guarded: ServiceProcess) -> None:
    counted = 'taugate_requests_total{code="200",route="/livez"}'

    def count() -> float:
        lines = guarded.http.get("/metrics", headers=bearer(SCRAPER)).text.splitlines()
        return float(next((line.split()[1] for line in lines if line.startswith(counted)), 0))

    before = count()
    guarded.http.head("/livez")
    assert count() == before + 1
