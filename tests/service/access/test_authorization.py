"""Authorization by host name and API key: the format of keys, what each may do, and which hosts are allowed."""

import asyncio
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from taugate.cli.serve import listen
from taugate.errors import InputError
from taugate.service.access import authorization
from taugate.service.access.authorization import AllowedHosts, ApiKey, Authorizer, check_access, check_keys, parse_keys
from taugate.service.app import create_app
from taugate.service.errors import Forbidden
from taugate.service.http.exchange import Caller, may_judge
from taugate.service.http.middleware import Operations
from taugate.service.http.operation import ENDPOINTS, Operation
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings
from tests.service.access.files import APP, ENTRIES, JUDGE, OLD, OPS, SCRAPER, api_key, bearer, entry, write
from tests.service.process.test_process import refusal

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


def passes(asked: str, **settings: str) -> bool:
    try:
        AllowedHosts(Settings(releases=Path("nowhere"), **settings)).check(asked.encode("latin-1"))
    except Forbidden as error:
        assert "TAUGATE_ALLOWED_HOSTS" in str(error)
        return False
    return True


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8000", "localhost.:8000", "127.0.0.1:8000", "10.1.2.3", "[::1]:8000", "[fe80::1]", ""],
)
def test_loopback_and_addresses_are_allowed(host: str) -> None:
    assert passes(host)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost"),
        *("[evil.example]", "localhost@evil.example", "evil.example#localhost", " ", "\xff", "a" * 10_000),
    ],
)
def test_unknown_host_is_refused(host: str) -> None:
    assert not passes(host)


def test_allowed_hosts_and_wildcards() -> None:
    names = "search.example.org, *.internal.example"
    for host in ("search.example.org:443", "Search.Example.org", "a.internal.example", "a.b.internal.example:8000"):
        assert passes(host, allowed_hosts=names)
    for host in ("internal.example", "evilinternal.example", "example.org", "localhost"):
        assert not passes(host, allowed_hosts=names)
    assert passes("taugate.lan:8000", host="taugate.lan")
    assert passes("anything.example", allowed_hosts="*")
    assert not passes(":8000", allowed_hosts="search.example.org,, ")


def test_host_is_checked_on_every_path() -> None:
    for path in ("/livez", "/search", "/openapi.json", "/nowhere"):
        reply = ask(app(), "GET", path, headers={"Host": "evil.example"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden")
        assert "evil.example is not a name of this service" in reply.json()["error"]["message"]


GOOD = entry(APP, "app", "search")
FAULTS: dict[str, tuple[Any, str]] = {
    "no JSON": ("[{", "keys.json: Invalid JSON"),
    "no list": ({"name": "app"}, "keys.json: Input should be a valid array"),
    "no object": ([7], "entry 1: Input should be an object"),
    "no scope": ([GOOD | {"scopes": []}], "entry 1: scopes: "),
    "no such scope": ([GOOD, entry("b", "b", "root")], "entry 2: scopes.0: Input should be 'search'"),
    "no hash": ([{"name": "app", "scopes": ["search"]}], "entry 1: sha256: Field required"),
    "half a hash": ([GOOD | {"sha256": GOOD["sha256"][:32]}], "entry 1: sha256: "),
    "the key itself": ([GOOD | {"key": APP}], "entry 1: key: Extra inputs"),
    "a name with a line feed": ([GOOD | {"name": "app\n"}], "entry 1: name: "),
    "a name with spaces": ([GOOD | {"name": "my app"}], "entry 1: name: "),
    "a rate of 0": ([GOOD | {"queries_per_second": 0}], "entry 1: queries_per_second: "),
    "a rate in words": ([GOOD | {"queries_per_second": "50"}], "entry 1: queries_per_second: "),
    "a day without a time zone": ([GOOD | {"expires": "2030-01-01T00:00:00"}], "entry 1: expires: "),
    "a number as a day": ([GOOD | {"expires": 1893456000}], "entry 1: expires: "),
    "a name twice": ([GOOD, entry("b", "app", "search")], "entry 2: another key is already named app"),
    "a key twice": ([GOOD, GOOD | {"name": "b"}], "entry 2: b repeats an earlier key"),
}


def parse(entries: Any) -> list[ApiKey]:
    text = entries if isinstance(entries, str) else json.dumps(entries)
    keys = parse_keys(text.encode(), "keys.json")
    check_keys(keys, "keys.json")
    return keys


@pytest.mark.parametrize(("entries", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_invalid_entry_is_named(entries: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(entries)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert GOOD["sha256"][:32] not in str(refused.value)
    assert APP not in str(refused.value)


def test_non_utf8_keys_are_refused() -> None:
    with pytest.raises(InputError, match="keys.json: "):
        parse_keys(b'[{"name": "\xe9"}]', "keys.json")


def test_entry_becomes_api_key() -> None:
    (key,) = parse([GOOD | {"queries_per_second": 2, "expires": "2030-01-01T01:00:00+01:00"}])
    assert (key.name, key.sha256, key.scopes) == ("app", GOOD["sha256"], ["search"])
    assert (key.queries_per_second, key.expires.timestamp(), key.filter) == (2.0, 1893456000.0, ())
    assert parse([]) == []


@pytest.mark.parametrize("sent", [APP, "judge-secret", "nobody's"])
def test_every_key_is_compared_in_constant_time(sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    in_constant_time = hmac.compare_digest

    def compare(one: str, other: str) -> bool:
        compared.append(other)
        return in_constant_time(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    keys = parse(ENTRIES)
    found = authorization.find_key(keys, sent.encode())
    assert (found.name if found else None) == {APP: "app", "judge-secret": "judge"}.get(sent)
    assert compared == [key.sha256 for key in keys]


ALL = ".".join("0000")
PUBLIC = [ALL, "::", "", "192.0.2.1", "10.0.0.1", "fe80::1", "example.org", "128.0.0.1", "127.1.evil.example"]
LOCAL = ["127.0.0.1", "127.0.0.2", "::1", "localhost"]


def settings(**given: object) -> Settings:
    return Settings(releases=Path("nowhere"), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", PUBLIC)
def test_public_address_without_keys_is_refused(host: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        listen(settings(host=host, port=0))
    assert "TAUGATE_KEYS_FILE" in str(refused.value)
    assert "TAUGATE_ALLOW_UNAUTHENTICATED=true" in str(refused.value)
    check_access(settings(host=host, allow_unauthenticated=True))
    check_access(settings(host=host, keys_file=write(tmp_path / "keys.json", ENTRIES)))


@pytest.mark.parametrize("host", LOCAL)
def test_loopback_address_needs_no_keys(host: str) -> None:
    check_access(settings(host=host))


def test_second_loopback_address_is_bound() -> None:
    with listen(settings(host="127.0.0.2", port=0)) as listener:
        assert listener.getsockname()[0] == "127.0.0.2"


def test_serve_without_keys_fails_in_one_line(releases: Path) -> None:
    message = refusal("--releases", str(releases), "--host", ALL)
    assert f"other machines can reach {ALL}, and no API keys are configured" in message


def test_unreadable_keys_prevent_start(releases: Path, tmp_path: Path) -> None:
    broken = write(tmp_path / "keys.json", '[{"name": "app"}]')
    message = refusal("--releases", str(releases), TAUGATE_KEYS_FILE=str(broken))
    assert f"{broken}, entry 1: sha256: Field required" in message


TENANT, OTHER = {"tenant": "a"}, {"tenant": "b"}


def replica(*entries: dict[str, Any]) -> Authorizer:
    """One that has just started with a list of keys."""
    return Authorizer(Settings(releases=Path("nowhere"), keys=SecretStr(json.dumps(entries))), Metrics())


def key(name: str, query_filter: dict[str, Any]) -> dict[str, Any]:
    return entry(name, name, "search", filter=query_filter)


def reply_to(name: str, query_filter: dict[str, Any]) -> str:
    return Caller("request", {}, key=api_key(name, filter=query_filter)).reply_id()


def test_replicas_and_restarts_accept_ids_of_same_filter() -> None:
    one = replica(key("a", TENANT), key("also-a", TENANT), key("b", OTHER))
    other = replica(key("b", OTHER), key("new", TENANT), key("a", TENANT))
    permitted, elsewhere = (api_key("a", filter=each).filter for each in (TENANT, OTHER))
    for _ in range(10):
        query_id = reply_to("a", TENANT)
        for server in (one, other):
            assert may_judge(permitted, query_id, server.secrets(permitted))
            assert not may_judge(elsewhere, query_id, server.secrets(elsewhere))
    assert not may_judge(permitted, reply_to("removed", TENANT), one.secrets(permitted))


def test_reply_id_confirms_no_guess_of_filter() -> None:
    """Neither by a hash without a secret, nor with the secret of another key."""
    query_id, permitted = reply_to("a", TENANT), api_key("a", filter=TENANT).filter
    digits = query_id[:16]
    for guess in (f"{digits}{permitted!r}", f"{permitted!r}{digits}", f"{permitted!r}"):
        assert hashlib.sha256(guess.encode()).hexdigest()[:16] != query_id[16:]
    assert not may_judge(permitted, query_id, ["", api_key("b").sha256])
    assert not may_judge(permitted, query_id)
