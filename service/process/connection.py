"""One connection: uvicorn's HTTP protocol within, and around it the deadlines of clients who are slow or silent.

No ASGI server gives these: how long a client may take to send a request, and to read its reply. uvicorn's `H11Protocol`
parses; it is used through its constructor and the callbacks of `asyncio.Protocol`, never through private parts.
"""

import asyncio
from dataclasses import dataclass
from email.utils import formatdate
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from taugate.service.api.connections import CONNECTION, CONNECTIONS, Connections
from taugate.service.api.request_scope import SECURITY_HEADERS
from taugate.service.errors import error_body
from taugate.service.runtime.ids import new_id


@dataclass(frozen=True, slots=True)
class Refusal:
    """reason: as the metric `taugate_refused_total` calls it; code, message: as a caller sees it."""

    reason: str
    status: HTTPStatus
    code: str
    message: str


TOO_SLOW = Refusal(
    "receive_timeout",
    HTTPStatus.REQUEST_TIMEOUT,
    "request_timeout",
    "the whole request was not there in time (TAUGATE_RECEIVE_SECONDS)",
)
TOO_MANY = Refusal(
    "connections",
    HTTPStatus.SERVICE_UNAVAILABLE,
    "overloaded",
    "too many connections are open (TAUGATE_MAX_CONNECTIONS); try again later",
)


def raw_reply(refusal: Refusal) -> bytes:
    """A whole HTTP/1.1 reply, which closes its connection."""
    request_id = new_id()
    body = orjson.dumps(error_body(refusal.code, refusal.message, request_id))
    headers = [
        (b"date", formatdate(usegmt=True).encode()),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        *SECURITY_HEADERS,
        (b"x-request-id", request_id.encode()),
    ]
    if refusal.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", b"1"))
    line = f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}\r\n".encode()
    return line + b"".join(b"%b: %b\r\n" % header for header in headers) + b"\r\n" + body


class _Waits(Enum):
    """Who the connection waits for, and for what."""

    BEGIN = auto()  # the client, to send the first byte of a request
    REST = auto()  # the client, to send the rest of it
    REPLY = auto()  # the service, to answer
    REFUSED = auto()  # the client, to send the rest of a request that was answered without it


class Connection(asyncio.Protocol):
    """Given to uvicorn as `http`. The ASGI side (service/api/connections.py) tells it how far a request is."""

    def __init__(self, *, app_state: dict[str, Any], **uvicorn: Any) -> None:  # noqa: ANN401 (uvicorn's own arguments)
        self._table: Connections = app_state[CONNECTIONS]
        self._http = H11Protocol(app_state=app_state | {CONNECTION: self}, **uvicorn)
        self._loop = asyncio.get_running_loop()
        self._waits, self._since = _Waits.BEGIN, self._loop.time()
        self._unread_since: float | None = None
        self._has_place = self._admitted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream it is
        """Take a place, or say that there is none."""
        self._transport = transport
        self._has_place = self._table.enter(self)
        if self._has_place:
            self._http.connection_made(transport)
        else:
            self._end(raw_reply(TOO_MANY))

    def data_received(self, data: bytes) -> None:
        """Hand on what came; the clock runs from the first byte of a request."""
        if self._transport.is_closing():
            return
        if self._waits is _Waits.BEGIN:
            self._waits, self._since = _Waits.REST, self._loop.time()
        try:
            self._http.data_received(data)
        except h11.LocalProtocolError:  # what came cannot be parsed, and a reply has begun: no 400 fits in any more
            self.abort()
        if self._transport.is_closing() and self._waits in (_Waits.REST, _Waits.REFUSED):
            self._table.count("malformed")  # h11 answers 400 by itself

    def eof_received(self) -> None:
        """The client sends no more."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """The client does not keep up with reading."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._table.leave(self)
        if self._has_place:
            self._http.connection_lost(exc)

    def asked(self, *, whole: bool) -> None:
        """The head of a request is there; whole: and nothing is to come after it."""
        if self._waits is not _Waits.REST:  # it came along with the one before
            self._since = self._loop.time()
        self._waits = _Waits.REPLY if whole else _Waits.REST

    def received(self) -> None:
        """All of the request is there."""
        if self._waits is _Waits.REST:
            self._waits = _Waits.REPLY
        if self._admitted:
            self._table.introduce(self)

    def admitted(self) -> None:
        """The request may pass: once all of it is there, the connection is a stranger's no more."""
        self._admitted = True
        if self._waits is _Waits.REPLY:
            self._table.introduce(self)

    def replied(self) -> None:
        """The whole reply was handed to the transport, which may wait for the client to read it."""
        self._waits = _Waits.BEGIN if self._waits is _Waits.REPLY else _Waits.REFUSED
        self._since = self._loop.time()
        if unread := self.unread():
            self._table.wrote(self, unread)

    def unread(self) -> int:
        """Bytes of replies that the client has not taken yet."""
        return self._transport.get_write_buffer_size()

    def look(self, now: float, seconds: float) -> None:
        """End where the client has made the service wait for longer than `seconds`."""
        if not self.unread():
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since > seconds:
            self._table.count("unread")
            self.abort()
        if self._waits is _Waits.REPLY or now - self._since <= seconds or self._transport.is_closing():
            return
        if self._waits is _Waits.REST:
            self._table.count(TOO_SLOW.reason)
            self._end(raw_reply(TOO_SLOW))
        else:  # nothing was asked, or it was answered
            self._end(b"")

    def abort(self) -> None:
        """End at once, whatever the client has not read yet."""
        self._transport.abort()

    def _end(self, reply: bytes) -> None:
        self._transport.write(reply)
        self._transport.close()
