"""The playground's files: served if it is on, without a key, under a strict content policy."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from taugate.service.api.pages import PAGE_HEADERS
from taugate.service.app import create_app
from taugate.service.settings import Settings
from taugate_playground.routes import page_files
from tests.service.access.files import ENTRIES, write
from tests.service_process import ServiceProcess

PATHS = {"/playground": "text/html", "/playground/app.css": "text/css", "/playground/app.js": "text/javascript"}


@pytest.fixture(scope="module")
def keyed(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    keys = write(tmp_path_factory.mktemp("keys") / "keys.json", ENTRIES)
    with ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys)) as process:
        yield process.ready()


@pytest.mark.parametrize("path", PATHS)
def test_page_files_are_public(keyed: ServiceProcess, path: str) -> None:
    reply = keyed.http.get(path)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == f"{PATHS[path]}; charset=utf-8"
    file = page_files()[path.removeprefix("/playground") and path[1:]]
    assert reply.content == file.content
    for name, value in PAGE_HEADERS.items():
        assert reply.headers.get_list(name) == [value], "once: of two policies, both would hold"
    assert reply.headers.get_list("cache-control") == ["no-cache"]
    assert reply.headers["x-frame-options"] == "DENY"
    head = keyed.http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-length", "content-type", "etag", "content-security-policy"):
        assert head.headers[name] == reply.headers[name]
    refused = keyed.http.post(path)
    assert (refused.status_code, {*refused.headers["allow"].split(", ")}) == (405, {"GET", "HEAD"})
    for other in ("/", "/app.css", "%2f", "/app.html"):
        assert keyed.http.get(f"{path}{other}").status_code in ({200} if f"{path}{other}" in PATHS else {404})


def test_unchanged_file_is_304(service: ServiceProcess) -> None:
    tag = service.http.get("/playground").headers["etag"]
    for sent in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        reply = service.http.get("/playground", headers={"If-None-Match": sent})
        assert (reply.status_code, reply.content, reply.headers["etag"]) == (304, b"", tag)
    assert service.http.get("/playground", headers={"If-None-Match": '"other"'}).status_code == 200
    assert len({file.etag for file in page_files().values()}) == 3


def test_content_policy_has_no_unsafe_source() -> None:
    policy = PAGE_HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self'; ")


@pytest.mark.parametrize(
    ("setting", "host", "served"),
    [
        ("auto", "127.0.0.1", True),
        ("auto", "::1", True),
        ("auto", "localhost", True),
        ("auto", "0.0.0.0", False),  # noqa: S104 (nothing listens)
        ("auto", "search.example.org", False),
        ("on", "0.0.0.0", True),  # noqa: S104
        ("off", "127.0.0.1", False),
    ],
)
def test_playground_follows_host_and_setting(releases: Path, setting: str, host: str, served: bool) -> None:
    app = create_app(Settings(releases=releases, host=host, playground=setting, allow_unauthenticated=True))
    http = TestClient(app, base_url="http://127.0.0.1")
    for path in PATHS:
        reply = http.get(path)
        assert reply.status_code == (200 if served else 404)
        assert (path in http.get("/openapi.json").json()["paths"]) == served
        if not served:
            assert reply.json()["error"]["code"] == "not_found"


def test_page_requests_are_counted_by_route(service: ServiceProcess) -> None:
    for path in PATHS:
        service.http.get(path)
    counted = service.http.get("/metrics").text
    for path in PATHS:
        assert f'taugate_requests_total{{code="200",route="{path}"}}' in counted
