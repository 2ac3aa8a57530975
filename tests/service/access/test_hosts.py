"""Allowed host names, against pages whose own name resolves to this machine."""

from pathlib import Path

import pytest

from taugate.service.access.authorization import AllowedHosts
from taugate.service.errors import Forbidden
from taugate.service.settings import Settings
from tests.service.http.test_authorization import app, ask


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
