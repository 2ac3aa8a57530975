"""HTTP/1.1 over a kept connection, as little of it as a load generator needs: prebuilt requests, Content-Length replies.

A general client costs ten times the processor time of a bare endpoint's reply, and would be what is measured.
"""

import asyncio
from collections.abc import Callable

HOST = "127.0.0.1"  # no load leaves the machine
LOST = 0  # the status of a request whose connection was closed before there was a reply
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"

Answered = Callable[["LoadConnection", int, bytes], None]


class LoadConnection(asyncio.Protocol):
    """A kept connection that carries at most one request at a time.

    Attributes:
        answered: Is told the connection, the status and the body of each reply; LOST if the connection was closed.
    """

    def __init__(self, answered: Answered) -> None:
        self.busy = False
        self.closed = False
        self.ends = False  # the server has said that it hangs up after its last reply, as nginx does every 1,000
        self._answered = answered
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def send(self, request: bytes) -> None:
        """Write a whole request."""
        if self._transport is None or self.busy:
            raise RuntimeError("a connection carries one request at a time")
        self.busy = True
        self._transport.write(request)

    def close(self) -> None:
        """Hang up."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; asyncio sets TCP_NODELAY by itself."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 (a type for the reader: TCP has no other)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Report a reply as soon as all of it is there."""
        self._received = received = self._received + data if self._received else data
        end = received.find(_HEAD_END)
        if end < 0:
            return
        head = received[:end].lower()
        begins = head.find(_LENGTH)
        if begins < 0:
            raise ValueError(f"a reply without Content-Length: {head[:200]!r}")
        length = int(head[begins + len(_LENGTH) :].split(b"\r\n", 1)[0])
        body = end + len(_HEAD_END)
        if len(received) < body + length:
            return
        self._received = b""
        self.busy = False
        self.ends = b"\r\nconnection: close" in head
        self._answered(self, int(head[9:12]), received[body : body + length])

    def connection_lost(self, exc: Exception | None) -> None:
        """Report LOST for a request without a reply."""
        self.closed = True
        if self.busy:
            self.busy = False
            self._answered(self, LOST, b"")


async def connect(port: int, answered: Answered) -> LoadConnection:
    """Open a connection to this machine; port and answered as for `LoadConnection`."""
    _, connection = await asyncio.get_running_loop().create_connection(lambda: LoadConnection(answered), HOST, port)
    return connection


def post(path: str, body: bytes) -> bytes:
    """Build a whole POST request with a JSON body."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get(path: str) -> bytes:
    """Build a whole GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
