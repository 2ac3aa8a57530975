"""Request heads: too long, malformed, or plain, which are read as h11 reads them."""

import json
import time
from pathlib import Path

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.service.http.connection import PlainRequest, read_plain
from tests.service.process.wire import BODY, HEAD, WHOLE, connected, error, refused, rest
from tests.service_process import ServiceProcess

LIMIT = 32 << 10  # the default
HERE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


def answer(service: ServiceProcess, *parts: bytes) -> bytes:
    with connected(service) as connection:
        for part in parts:
            connection.sendall(part)
        return rest(connection)[0]


CLOSE = b"Connection: close\r\n\r\n"
TOO_LONG = {
    "one header": (HERE + b"X-A: " + b"a" * LIMIT + b"\r\n\r\n",),
    "many headers": (HERE + b"X-A: b\r\n" * 100 + b"\r\n",),
    "many long headers": (HERE + (b"X-A: " + b"a" * (LIMIT // 90) + b"\r\n") * 90 + b"\r\n",),
    "a path": (b"GET /" + b"a" * LIMIT + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",),
    "behind another request": (HERE + b"\r\n" + HERE + b"X-A: " + b"a" * LIMIT + b"\r\n\r\n",),
}


@pytest.mark.parametrize("parts", TOO_LONG.values(), ids=TOO_LONG.keys())
def test_head_over_limit_is_431(service: ServiceProcess, parts: tuple[bytes, ...]) -> None:
    before = refused(service, "headers_too_large")
    reply = answer(service, *parts)
    if parts[0].count(b"GET") == 2:
        reply = reply[reply.index(b"HTTP/1.1", 1) :]  # that to the request before it
    assert error(reply) == (431, "headers_too_large")
    assert refused(service, "headers_too_large") == before + 1


@pytest.mark.parametrize("begin", [HERE, HERE + b"X-A: ", b"GET /"])
def test_endless_head_is_400(service: ServiceProcess, begin: bytes) -> None:
    before = refused(service, "malformed")
    more = b"X-A: " + b"a" * 993 + b"\r\n" if begin == HERE else b"a" * 1000
    # The last one is over the limit: what a client sends to a closed connection takes the reply away from it.
    parts = (LIMIT - len(begin)) // len(more) + 1
    assert answer(service, begin, *[more] * parts).startswith(b"HTTP/1.1 400 ")
    assert refused(service, "malformed") == before + 1


@pytest.mark.parametrize(
    "parts",
    [
        (HERE + b"X-A: " + b"a" * (LIMIT - 200) + b"\r\n" + CLOSE,),
        (HERE + b"X-A: b\r\n" * 98 + CLOSE,),
        (HERE, *[b"X-A: " + b"a" * 90 + b"\r\n"] * 50, CLOSE),
        # Bodies and requests before it are no part of a head.
        (WHOLE * 40 + HERE[:20], HERE[20:] + CLOSE),
        (HEAD + b"Content-Length: 40000\r\n\r\n" + b" " * 40000 + HERE[:20], HERE[20:] + CLOSE),
    ],
)
def test_head_at_limit_is_accepted(service: ServiceProcess, parts: tuple[bytes, ...]) -> None:
    replies = answer(service, *parts)
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
def test_malformed_http_is_400(service: ServiceProcess, sent: bytes) -> None:
    before = refused(service, "malformed")
    with connected(service, sent) as connection:
        connection.shutdown(1)
        reply, _ = rest(connection)
    assert refused(service, "malformed") == before + 1
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert service.http.get("/livez").status_code == 200


def test_ambiguous_length_is_400(service: ServiceProcess) -> None:
    """A proxy that believes one of them and this service the other would not agree where the next request begins."""
    both = HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    reply = answer(service, both + HERE + CLOSE)
    assert error(reply) == (400, "bad_request")
    assert reply.count(b"HTTP/1.1") == 1


def test_malformed_second_request_gets_own_reply(service: ServiceProcess) -> None:
    """What is wrong behind a request is answered after it, and no more than once."""
    for wrong in (
        b"\x00\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HERE + b"X-A: b\r\n" * 200 + b"\r\n",
    ):
        before = refused(service, "malformed") + refused(service, "headers_too_large")
        reply = answer(service, WHOLE.replace(b"marmalade", b"marmelada") + wrong)
        assert refused(service, "malformed") + refused(service, "headers_too_large") == before + 1
        assert reply.startswith(b"HTTP/1.1 200 ")
        assert reply.count(b"HTTP/1.1 4") == reply.count(b"HTTP/1.1") - 1 == 1
    early = b"POST /admin/reload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connected(service, early) as connection:
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(65536)
        connection.sendall(b"zz\r\n")
        reply, _ = rest(connection)
    assert (received[:13], reply) == (b"HTTP/1.1 403 ", b"")


def test_endless_trailers_are_refused(service: ServiceProcess) -> None:
    """They are no headers, and no more of them is kept than of a head."""
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
    with connected(service, chunked) as connection:
        sent = 0
        try:
            while sent < 4_000_000:
                sent += connection.send(b"X-A: " + b"a" * 900 + b"\r\n")
        except OSError:
            pass
    assert sent < 4_000_000, "all of them were taken"
    reply = answer(service, chunked + b"X-Request-ID: from-a-trailer\r\n\r\n" + HERE + CLOSE)
    assert reply.count(b"HTTP/1.1 200 ") == 2
    assert b"from-a-trailer" not in reply


@pytest.mark.parametrize("to", [b"websocket", b"h2c"])
def test_upgrade_request_is_answered_normally(service: ServiceProcess, to: bytes) -> None:
    """Also where the request has a body, which is part of it and no request of its own."""
    upgrade = b"Upgrade: " + to + b"\r\nConnection: Upgrade\r\n"
    assert answer(service, HERE + upgrade.replace(b"Upgrade\r\n", b"Upgrade, close\r\n") + b"\r\n").startswith(
        b"HTTP/1.1 200 "
    )
    inner = HERE.replace(b"livez", b"release") + b"\r\n"
    for body, status in ((BODY, b"200"), (inner, b"400")):
        sent = HEAD + upgrade + b"Content-Length: %d\r\n\r\n" % len(body) + body
        replies = answer(service, sent + HERE + CLOSE)
        assert replies.startswith(b"HTTP/1.1 " + status)
        assert replies.count(b"HTTP/1.1") == 2
        assert replies.endswith(b'{"status":"alive"}')


def test_many_pipelined_requests_are_answered(service: ServiceProcess) -> None:
    """They are answered one after the other; those that wait are not read."""
    replies = answer(service, (HERE + b"\r\n") * 500 + HERE + CLOSE)
    assert replies.count(b"HTTP/1.1 200 ") == 501


def test_requests_sent_during_reply_are_answered_in_order(service: ServiceProcess) -> None:
    """Those that arrive while a plain request is handled wait, whether they are plain themselves or not."""
    queries = json.dumps({"queries": [f"marmalade {row} " * 20 for row in range(64)]}).encode()
    slow = HEAD.replace(b"/search", b"/search/batch") + b"Content-Length: %d\r\n\r\n" % len(queries) + queries
    for later in (WHOLE, WHOLE + HERE + b"\r\n", WHOLE[:20]):
        with connected(service, slow) as connection:
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


PLAIN_HEAD = b"POST /search HTTP/1.1\r\nHost: localhost\r\n"
PLAIN_BODY = b'{"query": "permit"}'
PLAIN_WHOLE = PLAIN_HEAD + b"Content-Length: %d\r\n\r\n" % len(PLAIN_BODY) + PLAIN_BODY
GET = b"GET /livez?a=b%20c HTTP/1.1\r\nHost: a\r\nConnection: Keep-Alive\r\nX-A: \t 1 \r\nX-A:\r\n\r\n"
NOT_PLAIN = {
    "part of a head": PLAIN_HEAD,
    "part of a body": PLAIN_WHOLE[:-1],
    "the next request": PLAIN_WHOLE + b"G",
    "chunks": PLAIN_HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both lengths": PLAIN_HEAD + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "equal lengths": PLAIN_HEAD + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "a list of lengths": PLAIN_HEAD + b"Content-Length: 0, 0\r\n\r\n",
    "a signed length": PLAIN_HEAD + b"Content-Length: +0\r\n\r\n",
    "another digit": PLAIN_HEAD + "Content-Length: ٠\r\n\r\n".encode(),
    "expect": PLAIN_HEAD + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
    "upgrade": PLAIN_HEAD + b"Upgrade: h2c\r\n\r\n",
    "the last one": PLAIN_HEAD + b"Connection: close\r\n\r\n",
    "several options": PLAIN_HEAD + b"Connection: keep-alive, upgrade\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": PLAIN_HEAD + b"Host: localhost\r\n\r\n",
    "a folded line": PLAIN_HEAD + b"X-A: b\r\n c\r\n\r\n",
    "space before a colon": PLAIN_HEAD + b"X-A : b\r\n\r\n",
    "bare line feeds": PLAIN_HEAD.replace(b"\r", b"") + b"\n",
    "a carriage return": PLAIN_HEAD + b"X-A: b\rc\r\n\r\n",
    "zero": PLAIN_HEAD + b"X-A: \x00\r\n\r\n",
    "beyond ASCII": PLAIN_HEAD + b"X-A: \xff\r\n\r\n",
    "a blank line first": b"\r\n" + PLAIN_HEAD + b"\r\n",
    "another method": PLAIN_HEAD.replace(b"POST", b"PUT") + b"\r\n",
    "a whole URL": PLAIN_HEAD.replace(b"/search", b"http://localhost/") + b"\r\n",
    "HTTP/1.0": PLAIN_HEAD.replace(b"1.1", b"1.0") + b"\r\n",
    "HTTP/1.10": PLAIN_HEAD.replace(b"1.1", b"1.10") + b"\r\n",
}
_MUTATIONS = (b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b",", b"\x00", b"\xff", b"0", b"content-length: 3\r\n", b"{")


def read_by_h11(data: bytes) -> PlainRequest:
    """The one request that the bytes are; raises whatever is wrong with them."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    head, body, event = connection.next_event(), b"", connection.next_event()
    assert isinstance(head, h11.Request)
    while isinstance(event, h11.Data):
        body, event = body + event.data, connection.next_event()
    assert isinstance(event, h11.EndOfMessage)
    assert connection.their_state is h11.DONE, "the connection can be used again"
    assert connection.trailing_data == (b"", False)
    assert not connection.they_are_waiting_for_100_continue
    return PlainRequest(head.method, head.target, [*head.headers], body)


@pytest.mark.parametrize(
    "data", [PLAIN_WHOLE, GET, GET.replace(b"GET", b"HEAD"), PLAIN_HEAD + b"Content-Length: 0\r\n\r\n"]
)
def test_plain_request_equals_that_of_h11(data: bytes) -> None:
    assert read_plain(data) == read_by_h11(data)


@pytest.mark.parametrize("data", NOT_PLAIN.values(), ids=NOT_PLAIN.keys())
def test_special_request_is_not_plain(data: bytes) -> None:
    assert read_plain(data) is None


@given(
    st.sampled_from([PLAIN_WHOLE, GET, *NOT_PLAIN.values()]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), st.sampled_from(_MUTATIONS) | st.binary(max_size=3))),
)
def test_changed_request_is_not_plain_or_equals_that_of_h11(data: bytes, changes: list[tuple[int, int, bytes]]) -> None:
    for start, removed, inserted in changes:
        data = data[:start] + inserted + data[start + removed :]
    plain = read_plain(data)
    assert plain is None or plain == read_by_h11(data)
