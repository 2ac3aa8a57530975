"""What stands between the client and the service: proxies of the environment, TLS, and things that are no service.

Each failure is a TaugateError that names the URL and the proxy, and none shows a password.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from taugate_client import (
    ConnectionFailed,
    InvalidConfiguration,
    InvalidRequest,
    Retries,
    TaugateClient,
    TaugateError,
    UnexpectedReply,
)
from taugate_client.retrieval import Retrieval
from taugate_client.route import is_loopback, route_to
from taugate_mcp.replies import error_in_words
from tests.clients.test_client import BOTH, FAST, HALF, RESET, Answer, Script
from tests.loopback import free_port

SERVICE = "http://taugate.example:8000"  # no such host: whoever asks for it directly fails
VARIABLES = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUEST_METHOD"]
PAGE = b"<!doctype html><title>Log in to the network</title>"
HTML = {"Content-Type": "text/html; charset=utf-8"}
ONCE = Retries(most=0)

Send = Callable[..., str]


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        (SERVICE, {}, None),
        (SERVICE, {"HTTP_PROXY": "http://p:3128"}, "http://p:3128"),
        (SERVICE, {"http_proxy": "p:3128"}, "http://p:3128"),
        (SERVICE, {"HTTPS_PROXY": "http://p:3128"}, None),
        (SERVICE, {"ALL_PROXY": "http://all:1", "HTTP_PROXY": "http://p:1"}, "http://p:1"),
        (SERVICE, {"all_proxy": "http://all:1"}, "http://all:1"),
        (SERVICE, {"HTTP_PROXY": ""}, None),
        ("https://taugate.example", {"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        (SERVICE, {"HTTP_PROXY": "http://p", "NO_PROXY": "*"}, None),
        (SERVICE, {"HTTP_PROXY": "http://p", "NO_PROXY": "other, taugate.example"}, None),
        (SERVICE, {"HTTP_PROXY": "http://p", "NO_PROXY": "example"}, None),
        (SERVICE, {"HTTP_PROXY": "http://p", "NO_PROXY": ".example"}, None),
        (SERVICE, {"HTTP_PROXY": "http://p", "NO_PROXY": "*.example"}, None),
        (SERVICE, {"HTTP_PROXY": "http://p", "NO_PROXY": "taugate.example:8000"}, None),
        (SERVICE, {"HTTP_PROXY": "http://p", "NO_PROXY": "taugate.example:9"}, "http://p"),
        (SERVICE, {"HTTP_PROXY": "http://p", "NO_PROXY": "gate.example"}, "http://p"),
        ("http://10.1.2.3", {"HTTP_PROXY": "http://p", "NO_PROXY": "10.0.0.0/8"}, None),
        ("http://10.1.2.3", {"HTTP_PROXY": "http://p", "NO_PROXY": "10.2.0.0/16"}, "http://p"),
        ("http://[2001:db8::1]:80", {"HTTP_PROXY": "http://p", "NO_PROXY": "2001:db8::/32"}, None),
        ("http://127.0.0.1:8000", {"HTTP_PROXY": "http://p"}, None),
        ("http://127.8.9.1", {"HTTP_PROXY": "http://p"}, None),
        ("http://localhost:8000", {"ALL_PROXY": "socks5://p"}, None),
        ("https://[::1]:8000", {"HTTPS_PROXY": "http://p"}, None),
    ],
)
def test_route_uses_proxy_from_environment(
    url: str, environment: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert route_to(url).proxy == proxy


def test_is_loopback_for_local_addresses_only() -> None:
    here = ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.1", "::1", "::ffff:127.0.0.1", "0.0.0.0"]  # noqa: S104
    assert all(map(is_loopback, here))
    assert not any(map(is_loopback, ["localhost.example", "128.0.0.1", "10.0.0.1", "::2", "service", ""]))


@BOTH
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9", "no://such:scheme"])
def test_local_service_bypasses_proxy(send: Send, variable: str, proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, proxy)
    with Script("good") as server:
        assert send(server.url) == "accepted"


@BOTH
def test_remote_service_uses_proxy(send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    with Script("good") as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert send(SERVICE) == "accepted"
    assert proxy.requests[0].startswith(f"POST {SERVICE}/feedback HTTP/1.1\r\n".encode())


@BOTH
@pytest.mark.parametrize(
    "answer",
    [RESET, HALF, (200, HTML, PAGE), (302, {"Location": "http://login.example/"}, b""), (403, HTML, PAGE),
     (407, {"Proxy-Authenticate": "Basic"}, PAGE), (502, HTML, PAGE), (504, {}, b""), (200, {}, b"[" * 100_000),
     (200, {"Content-Encoding": "gzip"}, b"no gzip"), (200, {"Retry-After": "never"}, b'{"a": 1}')],
    ids=str,
)  # fmt: skip
def test_proxy_failure_names_proxy(send: Send, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    with Script(answer) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("http://", "http://user:secret@"))
        with pytest.raises(TaugateError) as failed:
            send(SERVICE, ONCE)
    assert f"{SERVICE}/feedback through the proxy {proxy.url} of HTTP_PROXY" in str(failed.value)
    assert "secret" not in str(failed.value)


@BOTH
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "all_proxy"])
def test_unreachable_proxy_is_named(send: Send, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv(variable, proxy)
    with pytest.raises(ConnectionFailed) as failed:
        send(SERVICE, FAST)
    assert str(failed.value).startswith("no reply: ")
    assert f"{SERVICE}/feedback through the proxy {proxy} of {variable}" in str(failed.value)


@BOTH
@pytest.mark.parametrize("status", [403, 407])
def test_proxy_refusing_tunnel_is_named(send: Send, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Script((status, HTML, PAGE)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(ConnectionFailed) as failed:
            send("https://taugate.example", ONCE)
    assert f"through the proxy {proxy.url} of HTTPS_PROXY" in str(failed.value)
    assert str(status) in str(failed.value)


@BOTH
@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("socks5://user:secret@127.0.0.1:9", "httpx2[socks]"),
        ("gopher://secret@127.0.0.1", "cannot connect to"),
        ("http://[::1", "cannot connect to"),
        ("http://p:99999", "cannot connect to"),
    ],
)
def test_unusable_proxy_url_is_named(send: Send, proxy: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(InvalidConfiguration, match="proxy") as failed:
        send(SERVICE)
    assert isinstance(failed.value, TaugateError)
    assert said in str(failed.value)
    assert "ALL_PROXY" in str(failed.value)
    assert SERVICE in str(failed.value)
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize(
    "url",
    ["", "ftp://h", "h:8000", "http://", "http://:80", "http://[::1", "http://h:99999", "http://h:port", "http://a b/",
     "https://user:secret@h:99999", "http://\x00", "file:///etc/passwd"],
)  # fmt: skip
def test_unusable_service_url_is_refused(url: str) -> None:
    for make in (TaugateClient, Retrieval):
        with pytest.raises(InvalidConfiguration, match="url") as failed:
            make(url)
        assert "secret" not in str(failed.value)


@BOTH
@pytest.mark.slow
def test_https_to_http_service_names_url(send: Send) -> None:
    with Script((400, {}, PAGE)) as server:
        url = server.url.replace("http://", "https://")
        with pytest.raises(ConnectionFailed) as failed:
            send(url, ONCE, 0.5)  # the server waits for the end of a request, which the start of TLS never has
    assert f"{url}/feedback" in str(failed.value)


def test_missing_certificates_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")
    with pytest.raises(InvalidConfiguration, match="SSL_CERT_FILE"):
        TaugateClient("https://taugate.example")
    TaugateClient(SERVICE).close()  # needs none


@BOTH
def test_service_error_names_url(send: Send) -> None:
    body = json.dumps({"error": {"code": "invalid", "message": "no", "request_id": "r-1"}}).encode()
    with Script((422, {}, body)) as server, pytest.raises(InvalidRequest) as failed:
        send(server.url)
    assert str(failed.value) == f"no (422, invalid, request r-1, {server.url}/feedback)"
    assert failed.value.message == "no"


@pytest.mark.parametrize("value", [float("nan"), datetime(2026, 1, 1), object(), "\ud800", {1, 2}])
def test_values_outside_json_are_refused(value: Any) -> None:
    with TaugateClient() as client, pytest.raises(InvalidRequest, match="JSON"):
        client.search("q", filter={"field": value})


def test_agent_learns_of_foreign_refusal() -> None:
    def words(status: int, headers: dict[str, str], body: bytes) -> str:
        with (
            Script((status, headers, body)) as server,
            TaugateClient(server.url, retries=ONCE) as client,
            pytest.raises(TaugateError) as failed,
        ):
            client.search("q")
        return error_in_words(failed.value)

    assert "The URL of this MCP server does not lead to a Taugate service" in words(403, HTML, PAGE)
    assert "The URL of this MCP server does not lead to a Taugate service" in words(404, HTML, PAGE)
    refused = json.dumps({"error": {"code": "forbidden", "message": "the key lacks search", "request_id": "r"}})
    assert "the key lacks search" in words(403, {}, refused.encode())


def test_captive_portal_page_is_refused() -> None:
    with (
        Script((200, HTML, PAGE)) as server,
        TaugateClient(server.url) as client,
        pytest.raises(UnexpectedReply, match="text/html, not JSON"),
    ):
        client.release()
