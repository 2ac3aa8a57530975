"""Plain requests: one HTTP/1.1 request that arrives whole, without anything that changes how it is read.

Nearly all requests are plain. h11 and uvicorn's cycle took half of the time until the reply to a cached query, for
cases that a plain request cannot be: bodies in chunks or parts, pipelining, upgrades, `Expect`, `Connection: close`. So
a plain request is parsed here by one expression, and its reply leaves in one write; all others take the usual way. What
is accepted here, h11 accepts with the same result (tests/service/http/test_plain.py compares them).
"""

import asyncio
import re
from typing import NamedTuple
from urllib.parse import unquote

from starlette.responses import Response
from starlette.types import Message
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from taugate.service.http.replies import reply_head

# As RFC 9112 defines them, but with fewer methods, targets that are paths, and values of visible ASCII characters.
_HEAD = re.compile(rb"(GET|HEAD|POST) (/[!-~]*) HTTP/1\.1\r\n((?:[-!#$%&'*+.^_`|~0-9A-Za-z]++:[\t -~]*+\r\n)*+)\r\n")
_LENGTH = re.compile(rb"[0-9]{1,9}")
# Headers that change how a request is read, or what follows it. Many clients send the last one with its default value.
_SPECIAL = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"connection"})
_KEPT = b"keep-alive"
CLOSE = (b"connection", b"close")


class PlainRequest(NamedTuple):
    """A whole request; `headers` has lower-case names, in their order."""

    method: bytes
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


def read_plain(data: bytes) -> PlainRequest | None:
    """Parse the bytes of one whole request; None if they are anything else, which says nothing about their validity."""
    head = _HEAD.match(data)
    if head is None:
        return None
    headers, lengths, hosts = [], 0, 0
    size = b"0"
    for line in head[3].split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        headers.append((name, value))
        if name in _SPECIAL and not (name == b"connection" and value.lower() == _KEPT):
            return None
        if name == b"content-length":
            lengths, size = lengths + 1, value
        elif name == b"host":
            hosts += 1
    if hosts != 1 or lengths > 1 or not _LENGTH.fullmatch(size) or len(data) - head.end() != int(size):
        return None
    return PlainRequest(head[1], head[2], headers, data[head.end() :])


class PlainCycle(RequestResponseCycle):
    """The handling of a plain request by an ASGI application. A reply of one message leaves in one write."""

    def __init__(self, connection: H11Protocol, request: PlainRequest) -> None:
        path, _, query = request.target.partition(b"?")
        super().__init__(
            {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": "1.1",
                "server": connection.server,
                "client": connection.client,
                "scheme": "http",
                "method": request.method.decode(),
                "root_path": "",
                "path": unquote(path.decode()),
                "raw_path": path,
                "query_string": query,
                "headers": request.headers,
                "state": connection.app_state.copy(),
            },
            connection.conn,
            connection.transport,
            connection.flow,
            connection.logger,
            connection.access_logger,
            connection.access_log,
            connection.server_state.default_headers,
            asyncio.Event(),
            connection.on_response_complete,
        )
        self.body, self.more_body = bytearray(request.body), False
        self.message_event.set()

    async def send(self, message: Message) -> None:  # type: ignore[override]  # uvicorn has a type for each message
        """Take the messages of a reply, which has a Content-Length; see ASGI."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self.response_started = True
            self._head = reply_head(message["status"], [*self.default_headers, *message["headers"]])
            self.keep_alive = CLOSE not in message["headers"]
            return
        self.transport.write(self._head + message.get("body", b""))
        self._head = b""
        if message.get("more_body", False):
            return
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def reply(self, response: Response) -> None:
        """Send a whole reply in place of the application's."""
        self.response_started = self.response_complete = True
        head = reply_head(response.status_code, [*self.default_headers, *response.raw_headers])
        self.transport.write(head + bytes(response.body))
        self.on_response()
