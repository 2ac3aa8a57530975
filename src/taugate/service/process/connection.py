"""One connection: uvicorn's HTTP protocol, and around it the deadlines of clients that are slow or silent.

No ASGI server has these: how long a client may take to send a request, and to read its reply. uvicorn's `H11Protocol`
parses; it is used through its constructor, the callbacks of `asyncio.Protocol`, `shutdown` and `conn`, never through
private parts. What is refused here never becomes a request, so that its reply is written as bytes.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from taugate.service.api.connections import CONNECTION, CONNECTIONS, ConnectionTable
from taugate.service.api.request_context import request_headers
from taugate.service.process.lingering import LingeringTransport
from taugate.service.process.refusals import TOO_MANY, TOO_SLOW, raw_reply

_FIRST_REQUEST_SECONDS = 1.0  # for the request of a client that was accepted right before the process stops


class _WaitsFor(Enum):
    """The next thing that a connection waits for."""

    FIRST_REQUEST = auto()
    NEXT_REQUEST = auto()  # for which uvicorn waits the keep-alive time
    REST_OF_REQUEST = auto()
    REPLY = auto()  # of the service
    REST_OF_ANSWERED = auto()  # the rest of a request that was answered without it


class HttpConnection(asyncio.Protocol):
    """A connection with deadlines, which uvicorn makes as it makes its own protocol.

    `ConnectionProgress` calls it as a request proceeds, and the application's `ConnectionTable` once a second.
    """

    def __init__(self, *, app_state: dict[str, Any], **uvicorn: Any) -> None:  # noqa: ANN401 (uvicorn's own arguments)
        """Wrap uvicorn's protocol.

        Args:
            app_state: The state of the application's lifespan, which has the table.
            uvicorn: What else its protocol takes.
        """
        self._table: ConnectionTable = app_state[CONNECTIONS]
        self._http = _Http(self.end_when_idle, app_state=app_state | {CONNECTION: self}, **uvicorn)
        self._loop = asyncio.get_running_loop()
        self._waits_for, self._since = _WaitsFor.FIRST_REQUEST, self._loop.time()
        self._unread_since: float | None = None
        self._has_place = self._admitted = self._ends_when_idle = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream it is
        """Take a place, or refuse the connection where there is none."""
        self._transport = LingeringTransport(transport, lambda: self._table.is_ending)
        self._has_place = self._table.enter(self)
        if self._has_place:
            self._http.connection_made(self._transport)
        else:
            self._end(raw_reply(TOO_MANY))

    def data_received(self, data: bytes) -> None:
        """Hand bytes on; the deadline of a request runs from its first one."""
        if self._transport.is_closing():
            return
        if self._waits_for in (_WaitsFor.FIRST_REQUEST, _WaitsFor.NEXT_REQUEST):
            self._waits_for, self._since = _WaitsFor.REST_OF_REQUEST, self._loop.time()
            self._table.busy(self)
        try:
            self._http.data_received(data)
        except h11.LocalProtocolError:  # what came cannot be parsed, and a reply has begun: no 400 fits in any more
            self.abort()
        answered_400 = self._waits_for in (_WaitsFor.REST_OF_REQUEST, _WaitsFor.REST_OF_ANSWERED)  # by h11 itself
        if self._transport.is_closing() and answered_400:
            self._table.count_refusal("malformed")

    def eof_received(self) -> None:
        """Hand on that the client sends no more."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """Hand on that the client reads more slowly than replies are written."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Hand on that the client has caught up."""
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the place."""
        self._table.leave(self)
        if self._has_place:
            self._http.connection_lost(exc)

    def request_began(self, *, has_body: bool) -> None:
        """Note that the head of a request is there.

        Args:
            has_body: Whether something is to come after it.
        """
        if self._waits_for is not _WaitsFor.REST_OF_REQUEST:  # it came along with the one before
            self._since = self._loop.time()
            self._table.busy(self)
        self._waits_for = _WaitsFor.REST_OF_REQUEST if has_body else _WaitsFor.REPLY

    def request_received(self) -> None:
        """Note that all of the request is there."""
        if self._waits_for is _WaitsFor.REST_OF_REQUEST:
            self._waits_for = _WaitsFor.REPLY
        if self._admitted:
            self._table.keep(self)

    def admitted(self) -> None:
        """Note that the request may pass: once all of it is there, the connection keeps its place."""
        self._admitted = True
        if self._waits_for is _WaitsFor.REPLY:
            self._table.keep(self)

    def closes_after_reply(self) -> bool:
        """Return whether the reply that begins has to say that it is the last one of the connection.

        If the next request is there already, it is answered first: a client that pipelines loses none.
        """
        return self._table.is_ending and not self._has_more_input()

    def replied(self) -> None:
        """Note that the whole reply was handed to the transport, which may wait for the client to read it."""
        self._since = self._loop.time()
        if self._waits_for is not _WaitsFor.REPLY:
            self._waits_for = _WaitsFor.REST_OF_ANSWERED
        elif self._has_more_input():
            self._waits_for = _WaitsFor.REST_OF_REQUEST
        else:
            self._waits_for = _WaitsFor.NEXT_REQUEST
            self._table.idle(self, self._since)
            if self._ends_when_idle:  # this reply had begun before the process was told to stop
                self.close()
        if unread := self.unread():
            self._table.wrote(self, unread)

    def end_when_idle(self) -> None:
        """Close now or, if a request is under way, after its reply: the process stops, and accepts no more."""
        self._ends_when_idle = True
        if self._waits_for in (_WaitsFor.NEXT_REQUEST, _WaitsFor.REST_OF_ANSWERED):
            self.close()
        elif self._waits_for is _WaitsFor.FIRST_REQUEST:  # which follows within a round trip if it was just accepted
            left = _FIRST_REQUEST_SECONDS - (self._loop.time() - self._since)
            self._loop.call_later(max(0.0, left), self._close_if_unused)

    def unread(self) -> int:
        """Return how many bytes of replies the client has not taken yet."""
        return self._transport.get_write_buffer_size()

    def end_if_late(self, now: float, seconds: float) -> None:
        """End the connection where its client has made the service wait for longer than `seconds`.

        Args:
            now: Time of the event loop in seconds.
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
        else:  # nothing was asked, or it was answered
            self._end(b"")

    def abort(self) -> None:
        """End at once, with whatever the client has not read."""
        self._transport.abort()

    def close(self) -> None:
        """End after what was written."""
        self._transport.close()

    def _close_if_unused(self) -> None:
        if self._waits_for is _WaitsFor.FIRST_REQUEST:
            self.close()

    def _has_more_input(self) -> bool:
        """Return whether bytes after the request that is being answered have come."""
        http = self._http.conn
        return http.their_state in (h11.DONE, h11.IDLE) and bool(http.trailing_data[0])

    def _end(self, reply: bytes) -> None:
        self._transport.write(reply)
        self._transport.close()


class _Http(H11Protocol):
    """uvicorn's protocol, which leaves to its connection how it ends."""

    def __init__(self, end_when_idle: Callable[[], None], **uvicorn: Any) -> None:  # noqa: ANN401 (as above)
        super().__init__(**uvicorn)
        self._end_when_idle = end_when_idle

    def shutdown(self) -> None:
        """Called by uvicorn for every connection, when it has stopped accepting: its own would lose requests."""
        self._end_when_idle()


class ConnectionProgress:
    """ASGI middleware around the application that tells a connection how far its request is, and sees every reply."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application.

        Args:
            app: Is called for every request.
        """
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, and tell the connection of the request's head, of its end, and of its reply's end.

        Args:
            scope: As ASGI has them; a request that came over another server's connection passes through.
            receive: As ASGI has them; a request that came over another server's connection passes through.
            send: As ASGI has them; a request that came over another server's connection passes through.
        """
        connection = scope.get("state", {}).get(CONNECTION)
        if scope["type"] != "http" or connection is None:
            await self._app(scope, receive, send)
            return
        headers = request_headers(scope)
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
