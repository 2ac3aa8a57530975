"""Connections with deadlines for slow or silent clients, wrapped around uvicorn's HTTP protocol.

No ASGI server limits how long a client may take to send a request, and to read its reply. uvicorn's `H11Protocol` does
the parsing; it is used through its constructor, the callbacks of `asyncio.Protocol`, `shutdown` and `conn`, and no
private attributes. A refused connection never becomes an ASGI request, so its reply is written as raw bytes.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from taugate.service.api.connections import CONNECTION, CONNECTIONS, ConnectionTable
from taugate.service.process.lingering import LingeringTransport
from taugate.service.process.refusals import TOO_MANY, TOO_SLOW, raw_reply

_FIRST_REQUEST_SECONDS = 1.0  # for the first request of a connection that was accepted just before the process stops


class _WaitsFor(Enum):
    """The next event that a connection waits for."""

    FIRST_REQUEST = auto()
    NEXT_REQUEST = auto()  # uvicorn has its own keep-alive timer for this one
    REST_OF_REQUEST = auto()
    REPLY = auto()  # from the service
    REST_OF_REPLIED = auto()  # the rest of a request whose reply did not wait for it


class HttpConnection(asyncio.Protocol):
    """A connection with deadlines, which uvicorn creates in place of its own protocol.

    `ConnectionProgress` calls it as a request proceeds, and the application's `ConnectionTable` once a second.
    """

    def __init__(self, *, app_state: dict[str, Any], **uvicorn: Any) -> None:  # noqa: ANN401 (uvicorn's own arguments)
        """Wrap uvicorn's protocol.

        Args:
            app_state: State of the application's lifespan, which holds the connection table.
            uvicorn: Further arguments of uvicorn's protocol.
        """
        self._table: ConnectionTable = app_state[CONNECTIONS]
        self._http = _Http(self.end_when_idle, app_state=app_state | {CONNECTION: self}, **uvicorn)
        self._loop = asyncio.get_running_loop()
        self._waits_for, self._since = _WaitsFor.FIRST_REQUEST, self._loop.time()
        self._unread_since: float | None = None
        self._registered = self._authorized = self._ends_when_idle = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream it is
        """Register the connection, or refuse it if the table is full."""
        self._transport = LingeringTransport(transport, lambda: self._table.is_ending)
        self._registered = self._table.enter(self)
        if self._registered:
            self._http.connection_made(self._transport)
        else:
            self._end(raw_reply(TOO_MANY))

    def data_received(self, data: bytes) -> None:
        """Pass bytes on. The deadline of a request starts with its first byte."""
        if self._transport.is_closing():
            return
        if self._waits_for in (_WaitsFor.FIRST_REQUEST, _WaitsFor.NEXT_REQUEST):
            self._waits_for, self._since = _WaitsFor.REST_OF_REQUEST, self._loop.time()
            self._table.busy(self)
        try:
            self._http.data_received(data)
        except h11.LocalProtocolError:  # the input cannot be parsed, and a reply has begun, so 400 cannot be sent
            self.abort()
        h11_sent_400 = self._waits_for in (_WaitsFor.REST_OF_REQUEST, _WaitsFor.REST_OF_REPLIED)
        if self._transport.is_closing() and h11_sent_400:
            self._table.count_refusal("malformed")

    def eof_received(self) -> None:
        """Pass on that the client has closed its side of the connection."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the client reads more slowly than replies are written."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the client has caught up."""
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the table."""
        self._table.leave(self)
        if self._registered:
            self._http.connection_lost(exc)

    def request_began(self, *, has_body: bool) -> None:
        """Record that the head of a request was received, and whether a body follows."""
        if self._waits_for is not _WaitsFor.REST_OF_REQUEST:  # the request was pipelined behind another one
            self._since = self._loop.time()
            self._table.busy(self)
        self._waits_for = _WaitsFor.REST_OF_REQUEST if has_body else _WaitsFor.REPLY

    def request_received(self) -> None:
        """Record that the whole request was received."""
        if self._waits_for is _WaitsFor.REST_OF_REQUEST:
            self._waits_for = _WaitsFor.REPLY
        if self._authorized:
            self._table.authenticated(self)

    def request_authorized(self) -> None:
        """Record that the request is authorized. Once all of it was received, the connection is not replaced."""
        self._authorized = True
        if self._waits_for is _WaitsFor.REPLY:
            self._table.authenticated(self)

    def closes_after_reply(self) -> bool:
        """Return whether the reply about to be sent must say `Connection: close`.

        A pipelined request that was already received is handled first, so that its client does not lose it.
        """
        return self._table.is_ending and not self._has_more_input()

    def replied(self) -> None:
        """Record that the whole reply was written to the transport, which may still wait for the client to read it."""
        self._since = self._loop.time()
        if self._waits_for is not _WaitsFor.REPLY:
            self._waits_for = _WaitsFor.REST_OF_REPLIED
        elif self._has_more_input():
            self._waits_for = _WaitsFor.REST_OF_REQUEST
        else:
            self._waits_for = _WaitsFor.NEXT_REQUEST
            self._table.idle(self, self._since)
            if self._ends_when_idle:  # the reply had begun before the process was told to stop
                self.close()
        if unread := self.unread():
            self._table.wrote(self, unread)

    def end_when_idle(self) -> None:
        """Close now or, if a request is in progress, after its reply, because the process is stopping."""
        self._ends_when_idle = True
        if self._waits_for in (_WaitsFor.NEXT_REQUEST, _WaitsFor.REST_OF_REPLIED):
            self.close()
        elif self._waits_for is _WaitsFor.FIRST_REQUEST:  # on a new connection it arrives within a round trip
            remaining = _FIRST_REQUEST_SECONDS - (self._loop.time() - self._since)
            self._loop.call_later(max(0.0, remaining), self._close_if_unused)

    def unread(self) -> int:
        """Return the number of bytes of replies that the client has not read yet."""
        return self._transport.get_write_buffer_size()

    def end_if_late(self, now: float, seconds: float) -> None:
        """Close the connection if its client has kept the service waiting for longer than `seconds`.

        Args:
            now: Time of the event loop, in seconds.
            seconds: Deadline of clients.
        """
        if not self.unread():
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since > seconds:
            self._table.count_refusal("unread")
            self.abort()
        untimed = self._waits_for in (_WaitsFor.REPLY, _WaitsFor.NEXT_REQUEST)
        if untimed or now - self._since <= seconds or self._transport.is_closing():
            return
        if self._waits_for is _WaitsFor.REST_OF_REQUEST:
            self._table.count_refusal(TOO_SLOW.reason)
            self._end(raw_reply(TOO_SLOW))
        else:  # there was no request, or its reply has been sent
            self._end(b"")

    def abort(self) -> None:
        """Close at once, and discard what the client has not read."""
        self._transport.abort()

    def close(self) -> None:
        """Close once all that was written has been sent."""
        self._transport.close()

    def _close_if_unused(self) -> None:
        if self._waits_for is _WaitsFor.FIRST_REQUEST:
            self.close()

    def _has_more_input(self) -> bool:
        """Return whether bytes after the current request have been received."""
        http = self._http.conn
        return http.their_state in (h11.DONE, h11.IDLE) and bool(http.trailing_data[0])

    def _end(self, reply: bytes) -> None:
        self._transport.write(reply)
        self._transport.close()


class _Http(H11Protocol):
    """uvicorn's protocol, with the shutdown left to its `HttpConnection`."""

    def __init__(self, end_when_idle: Callable[[], None], **uvicorn: Any) -> None:  # noqa: ANN401 (as above)
        super().__init__(**uvicorn)
        self._end_when_idle = end_when_idle

    def shutdown(self) -> None:
        """Called by uvicorn for every connection once it has stopped accepting; its own version would lose requests."""
        self._end_when_idle()


class ConnectionProgress:
    """Outermost ASGI middleware, which reports the progress of a request and its reply to the `HttpConnection`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, and report the head of the request, its end, and the end of its reply.

        A request from a server with other connections passes through.
        """
        connection = scope.get("state", {}).get(CONNECTION)
        if scope["type"] != "http" or connection is None:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        connection.request_began(has_body=has_body)

        async def receive_and_report() -> Message:
            message = await receive()
            if not message.get("more_body"):
                connection.request_received()
            return message

        async def send_and_report(message: Message) -> None:
            if message["type"] == "http.response.start" and connection.closes_after_reply():
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                connection.replied()

        await self._app(scope, receive_and_report, send_and_report)
