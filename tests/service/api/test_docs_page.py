"""What a person gets who opens the service's address: the playground or a page, and the description of the API."""

import base64
import hashlib
import re
from pathlib import Path
from typing import Literal

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser

from taugate.service.api.pages import api_page
from taugate.service.app import create_app, openapi_document
from taugate.service.settings import Settings
from tests.browser import cut_off, opened, violations
from tests.service_process import ServiceProcess

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
