"""What is accepted as a plain request, h11 accepts with the same result."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.service.http.connection import PlainRequest, read_plain

HEAD = b"POST /search HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"query": "permit"}'
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
GET = b"GET /livez?a=b%20c HTTP/1.1\r\nHost: a\r\nConnection: Keep-Alive\r\nX-A: \t 1 \r\nX-A:\r\n\r\n"
NOT_PLAIN = {
    "part of a head": HEAD,
    "part of a body": WHOLE[:-1],
    "the next request": WHOLE + b"G",
    "chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both lengths": HEAD + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "equal lengths": HEAD + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "a list of lengths": HEAD + b"Content-Length: 0, 0\r\n\r\n",
    "a signed length": HEAD + b"Content-Length: +0\r\n\r\n",
    "another digit": HEAD + "Content-Length: ٠\r\n\r\n".encode(),
    "expect": HEAD + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
    "upgrade": HEAD + b"Upgrade: h2c\r\n\r\n",
    "the last one": HEAD + b"Connection: close\r\n\r\n",
    "several options": HEAD + b"Connection: keep-alive, upgrade\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": HEAD + b"Host: localhost\r\n\r\n",
    "a folded line": HEAD + b"X-A: b\r\n c\r\n\r\n",
    "space before a colon": HEAD + b"X-A : b\r\n\r\n",
    "bare line feeds": HEAD.replace(b"\r", b"") + b"\n",
    "a carriage return": HEAD + b"X-A: b\rc\r\n\r\n",
    "zero": HEAD + b"X-A: \x00\r\n\r\n",
    "beyond ASCII": HEAD + b"X-A: \xff\r\n\r\n",
    "a blank line first": b"\r\n" + HEAD + b"\r\n",
    "another method": HEAD.replace(b"POST", b"PUT") + b"\r\n",
    "a whole URL": HEAD.replace(b"/search", b"http://localhost/") + b"\r\n",
    "HTTP/1.0": HEAD.replace(b"1.1", b"1.0") + b"\r\n",
    "HTTP/1.10": HEAD.replace(b"1.1", b"1.10") + b"\r\n",
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


@pytest.mark.parametrize("data", [WHOLE, GET, GET.replace(b"GET", b"HEAD"), HEAD + b"Content-Length: 0\r\n\r\n"])
def test_plain_request_equals_that_of_h11(data: bytes) -> None:
    assert read_plain(data) == read_by_h11(data)


@pytest.mark.parametrize("data", NOT_PLAIN.values(), ids=NOT_PLAIN.keys())
def test_special_request_is_not_plain(data: bytes) -> None:
    assert read_plain(data) is None


@given(
    st.sampled_from([WHOLE, GET, *NOT_PLAIN.values()]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), st.sampled_from(_MUTATIONS) | st.binary(max_size=3))),
)
def test_changed_request_is_not_plain_or_equals_that_of_h11(data: bytes, changes: list[tuple[int, int, bytes]]) -> None:
    for start, removed, inserted in changes:
        data = data[:start] + inserted + data[start + removed :]
    plain = read_plain(data)
    assert plain is None or plain == read_by_h11(data)
