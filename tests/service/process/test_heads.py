"""Request heads that are too long, have too many headers, or are malformed."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.process.wire import BODY, HEAD, WHOLE, connected, error, refused, rest
from tests.service_process import ServiceProcess

LIMIT = 8192
HERE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


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
    "a path": (b"GET /" + b"a" * LIMIT + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",),
    "behind another request": (HERE + b"\r\n" + HERE + b"X-A: " + b"a" * LIMIT + b"\r\n\r\n",),
}


@pytest.mark.parametrize("parts", TOO_LONG.values(), ids=TOO_LONG.keys())
def test_head_over_limit_is_431(strict: ServiceProcess, parts: tuple[bytes, ...]) -> None:
    before = refused(strict, "headers_too_large")
    reply = answer(strict, *parts)
    if parts[0].count(b"GET") == 2:
        reply = reply[reply.index(b"HTTP/1.1", 1) :]  # that to the request before it
    assert error(reply) == (431, "headers_too_large")
    assert refused(strict, "headers_too_large") == before + 1


@pytest.mark.parametrize("begin", [HERE, HERE + b"X-A: ", b"GET /"])
def test_endless_head_is_400(strict: ServiceProcess, begin: bytes) -> None:
    before = refused(strict, "malformed")
    more = b"X-A: " + b"a" * 993 + b"\r\n" if begin == HERE else b"a" * 1000
    # The last one is over the limit: what a client sends to a closed connection takes the reply away from it.
    parts = (LIMIT - len(begin)) // len(more) + 1
    assert answer(strict, begin, *[more] * parts).startswith(b"HTTP/1.1 400 ")
    assert refused(strict, "malformed") == before + 1


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
def test_head_at_limit_is_accepted(strict: ServiceProcess, parts: tuple[bytes, ...]) -> None:
    replies = answer(strict, *parts)
    assert b"HTTP/1.1 431" not in replies
    assert replies.endswith(b'{"status":"alive"}')


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        HERE + b"X-Secret\r\n\r\n",
        HERE + b"X-Secret: a\x00b\r\n\r\n",
        HERE + b"Content-Length: -1\r\n\r\n",
        HERE + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=range(7),
)
def test_malformed_http_is_400(strict: ServiceProcess, sent: bytes) -> None:
    before = refused(strict, "malformed")
    with connected(strict, sent) as connection:
        connection.shutdown(1)
        reply, _ = rest(connection)
    assert refused(strict, "malformed") == before + 1
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert strict.http.get("/livez").status_code == 200


def test_ambiguous_length_is_400(strict: ServiceProcess) -> None:
    """A proxy that believes one of them and this service the other would not agree where the next request begins."""
    both = HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    reply = answer(strict, both + HERE + CLOSE)
    assert error(reply) == (400, "bad_request")
    assert reply.count(b"HTTP/1.1") == 1


def test_malformed_second_request_gets_own_reply(strict: ServiceProcess) -> None:
    """What is wrong behind a request is answered after it, and no more than once."""
    for wrong in (
        b"\x00\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HERE + b"X-A: b\r\n" * 200 + b"\r\n",
    ):
        before = refused(strict, "malformed") + refused(strict, "headers_too_large")
        reply = answer(strict, WHOLE.replace(b"marmalade", b"marmelada") + wrong)
        assert refused(strict, "malformed") + refused(strict, "headers_too_large") == before + 1
        assert reply.startswith(b"HTTP/1.1 200 ")
        assert reply.count(b"HTTP/1.1 4") == reply.count(b"HTTP/1.1") - 1 == 1
    early = b"POST /admin/reload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connected(strict, early) as connection:
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(65536)
        connection.sendall(b"zz\r\n")
        reply, _ = rest(connection)
    assert (received[:13], reply) == (b"HTTP/1.1 403 ", b"")


def test_endless_trailers_are_refused(strict: ServiceProcess) -> None:
    """They are no headers, and no more of them is kept than of a head."""
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
    with connected(strict, chunked) as connection:
        sent = 0
        try:
            while sent < 4_000_000:
                sent += connection.send(b"X-A: " + b"a" * 900 + b"\r\n")
        except OSError:
            pass
    assert sent < 4_000_000, "all of them were taken"
    reply = answer(strict, chunked + b"X-Request-ID: from-a-trailer\r\n\r\n" + HERE + CLOSE)
    assert reply.count(b"HTTP/1.1 200 ") == 2
    assert b"from-a-trailer" not in reply


@pytest.mark.parametrize("to", [b"websocket", b"h2c"])
def test_upgrade_request_is_answered_normally(strict: ServiceProcess, to: bytes) -> None:
    """Also where the request has a body, which is part of it and no request of its own."""
    upgrade = b"Upgrade: " + to + b"\r\nConnection: Upgrade\r\n"
    assert answer(strict, HERE + upgrade.replace(b"Upgrade\r\n", b"Upgrade, close\r\n") + b"\r\n").startswith(
        b"HTTP/1.1 200 "
    )
    inner = HERE.replace(b"livez", b"release") + b"\r\n"
    for body, status in ((BODY, b"200"), (inner, b"400")):
        sent = HEAD + upgrade + b"Content-Length: %d\r\n\r\n" % len(body) + body
        replies = answer(strict, sent + HERE + CLOSE)
        assert replies.startswith(b"HTTP/1.1 " + status)
        assert replies.count(b"HTTP/1.1") == 2
        assert replies.endswith(b'{"status":"alive"}')


def test_many_pipelined_requests_are_answered(strict: ServiceProcess) -> None:
    """They are answered one after the other; those that wait are not read."""
    replies = answer(strict, (HERE + b"\r\n") * 500 + HERE + CLOSE)
    assert replies.count(b"HTTP/1.1 200 ") == 501


def test_requests_sent_during_reply_are_answered_in_order(strict: ServiceProcess) -> None:
    """Those that arrive while a plain request is handled wait, whether they are plain themselves or not."""
    queries = json.dumps({"queries": [f"marmalade {row} " * 20 for row in range(64)]}).encode()
    slow = HEAD.replace(b"/search", b"/search/batch") + b"Content-Length: %d\r\n\r\n" % len(queries) + queries
    for later in (WHOLE, WHOLE + HERE + b"\r\n", WHOLE[:20]):
        with connected(strict, slow) as connection:
            time.sleep(0.05)
            connection.sendall(later)
            time.sleep(0.05)
            connection.sendall((WHOLE[20:] if len(later) == 20 else b"") + HERE + CLOSE)
            replies = rest(connection)[0]
        bodies = [reply.partition(b"\r\n\r\n")[2] for reply in replies.split(b"HTTP/1.1 200 ")[1:]]
        assert [body[:10] for body in bodies[:2]] == [b'{"response', b'{"results"']
        assert bodies[2:] == [b'{"status":"alive"}'] * (1 + later.count(b"GET"))


@pytest.mark.slow
def test_malformed_requests_are_not_logged(releases: Path) -> None:
    with ServiceProcess(releases, TAUGATE_LOG_LEVEL="debug") as service:
        service.ready()
        for sent in (b"GET /secret\r\n\r\n", HERE + b"X-Secret\r\n\r\n", b"secret secret secret\r\n\r\n"):
            answer(service, sent)
        answer(service, HERE + b"Upgrade: secret\r\nConnection: Upgrade, close\r\n\r\n")
        with connected(service, WHOLE.replace(b"marmalade", b"marmelada") * 2):
            pass  # gone before the first of two is answered
        answer(service, WHOLE + b"\x00")
        for head in (HERE, HEAD):  # one of them is answered before its body is read
            answer(service, head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
        answer(service, WHOLE + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
        _, log = service.stop()
    assert "secret" not in log.lower()
    assert not [line for line in map(json.loads, log.splitlines()) if line["level"] in ("warning", "error")]
