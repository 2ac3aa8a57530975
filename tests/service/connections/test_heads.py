"""Heads that are too long, have too many headers, or are none."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.connections.wire import HEAD, WHOLE, connected, error, refused, rest
from tests.service_process import ServiceProcess

LIMIT = 8192
HERE = b"GET /livez HTTP/1.1\r\nHost: here\r\n"


@pytest.fixture(scope="module")
def strict(releases: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(releases, TAUGATE_MAX_HEADER_BYTES=str(LIMIT)) as process:
        yield process.ready()


def answer(service: ServiceProcess, *parts: bytes) -> bytes:
    with connected(service) as connection:
        for part in parts:
            connection.sendall(part)
        return rest(connection)[0]


CLOSE = b"Connection: close\r\n\r\n"
TOO_LONG = {
    "one header": (HERE + b"X-A: " + b"a" * LIMIT + b"\r\n\r\n",),
    "many headers": (HERE + b"X-A: b\r\n" * 100 + b"\r\n",),
    "many long headers": (HERE + (b"X-A: " + b"a" * 100 + b"\r\n") * 90 + b"\r\n",),
    "a path": (b"GET /" + b"a" * LIMIT + b" HTTP/1.1\r\nHost: here\r\n\r\n",),
    "no end": (HERE, *[b"X-A: " + b"a" * 1000 + b"\r\n"] * 12),
    "one header without end": (HERE + b"X-A: ", *[b"a" * 1000] * 12),
    "a path without end": (b"GET /", *[b"a" * 1000] * 12),
    "behind another request": (HERE + b"\r\n" + HERE + b"X-A: " + b"a" * LIMIT + b"\r\n\r\n",),
}


@pytest.mark.parametrize("parts", TOO_LONG.values(), ids=TOO_LONG.keys())
def test_a_head_that_is_too_long(strict: ServiceProcess, parts: tuple[bytes, ...]) -> None:
    before = refused(strict, "headers")
    reply = answer(strict, *parts)
    if parts[0].count(b"GET") == 2:
        assert refused(strict, "headers") == before + 1  # the one before may go down with it
    else:
        assert error(reply) == (431, "headers_too_large")
    assert refused(strict, "headers") == before + 1


@pytest.mark.parametrize(
    "parts",
    [
        (HERE + b"X-A: " + b"a" * (LIMIT - 200) + b"\r\n" + CLOSE,),
        (HERE + b"X-A: b\r\n" * 98 + CLOSE,),
        (HERE, *[b"X-A: " + b"a" * 90 + b"\r\n"] * 50, CLOSE),
        # Bodies and requests before it are no part of a head.
        (WHOLE * 40 + HERE[:20], HERE[20:] + CLOSE),
        (HEAD + b"Content-Length: 20000\r\n\r\n" + b" " * 20000 + HERE[:20], HERE[20:] + CLOSE),
    ],
)
def test_a_head_at_the_limit(strict: ServiceProcess, parts: tuple[bytes, ...]) -> None:
    replies = answer(strict, *parts)
    assert b"HTTP/1.1 431" not in replies
    assert replies.endswith(b'{"status":"alive"}')


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"GET /secret HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: here\r\n\r\n",
        HERE + b"X-Secret\r\n\r\n",
        HERE + b"X-Secret: a\x00b\r\n\r\n",
        HERE + b"Content-Length: -1\r\n\r\n",
        HERE + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        HERE + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"CONNECT secret.example:443 HTTP/1.1\r\nHost: here\r\n\r\n",
        HERE * 3 + b"\r\n\x00\x00\x00",
    ],
    ids=range(12),
)
def test_what_is_no_http(strict: ServiceProcess, sent: bytes) -> None:
    before = refused(strict, "malformed")
    with connected(strict, sent) as connection:
        connection.shutdown(1)
        reply, _ = rest(connection)
    assert refused(strict, "malformed") == before + 1
    assert error(reply) == (400, "bad_request")
    assert strict.http.get("/livez").status_code == 200


@pytest.mark.parametrize(
    "wrong", [b"\x00", HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", HERE + b"X-A: b\r\n" * 200 + b"\r\n"]
)
def test_a_reply_is_never_that_to_something_else(strict: ServiceProcess, wrong: bytes) -> None:
    """What is wrong behind a request at work ends both: an error now would be taken for the first one's reply."""
    with connected(strict, WHOLE.replace(b"marmalade", b"marmelada") + wrong) as connection:
        reply, _ = rest(connection)
    assert reply == b""
    early = b"POST /admin/reload HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connected(strict, early) as connection:
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(65536)
        connection.sendall(b"zz\r\n")
        reply, _ = rest(connection)
    assert (received[:13], reply) == (b"HTTP/1.1 403 ", b"")


def test_an_upgrade_is_answered_without_one(strict: ServiceProcess) -> None:
    for to in (b"websocket", b"h2c"):
        reply = answer(strict, HERE + b"Upgrade: " + to + b"\r\nConnection: Upgrade, close\r\n\r\n")
        assert reply.startswith(b"HTTP/1.1 200 ")


def test_requests_without_number_at_once(strict: ServiceProcess) -> None:
    before = refused(strict, "malformed")
    with connected(strict, b"GET /livez HTTP/1.1\r\n\r\n" * 10_000) as connection:
        rest(connection)
    assert refused(strict, "malformed") == before + 1
    replies = answer(strict, (HERE + b"\r\n") * 50 + HERE + CLOSE)
    assert replies.count(b"HTTP/1.1 200 ") == 51


def test_nothing_of_it_is_in_the_log(releases: Path) -> None:
    with ServiceProcess(releases, TAUGATE_LOG_LEVEL="debug") as service:
        service.ready()
        for sent in (b"GET /secret\r\n\r\n", HERE + b"X-Secret\r\n\r\n", b"secret secret secret\r\n\r\n"):
            answer(service, sent)
        answer(service, HERE + b"Upgrade: secret\r\nConnection: Upgrade, close\r\n\r\n")
        with connected(service, WHOLE.replace(b"marmalade", b"marmelada") * 2):
            pass  # gone before the first of two is answered
        answer(service, WHOLE + b"\x00")
        answer(service, WHOLE + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
        _, log = service.stop()
    assert "secret" not in log.lower()
    assert not [line for line in map(json.loads, log.splitlines()) if line["level"] in ("warning", "error")]
