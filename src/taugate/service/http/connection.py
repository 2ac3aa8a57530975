"""A client's connection: what it waits for, the deadlines of slow clients, and an end that loses nothing of a reply.

No ASGI server limits how long a client may take to send a request, and to read its reply. This is uvicorn's
`H11Protocol` with such limits, and with a shorter way for plain requests (service/http/plain.py), of which h11 sees
nothing. h11 tracks both sides of any other request; `_advance` derives from them what the connection waits for. It is
called after every event, and nothing else changes that state.
"""

import asyncio
import math
import re
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from enum import Enum, auto
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

import h11
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from taugate.service.errors import ApiError, RequestTimeout, TooManyConnections
from taugate.service.http.connection_table import ConnectionTable
from taugate.service.http.exchange import new_id, raw_reply, reply_head

_LINGER_SECONDS = 2.0  # time for a client to read the end of the stream and close its side
# What uvicorn's protocol and service/http/connection.py call of a transport, besides `close` and `is_closing`.
_PASSED_ON = ("abort", "get_extra_info", "get_write_buffer_size", "pause_reading", "resume_reading", "write")

_FIRST_REQUEST_SECONDS = 1.0  # for the first request of a connection that was accepted just before the process stops
# Replies to a request that is refused at once, given its scope and its body; see RequestSteps.
Refuse = Callable[[Scope, bytes], Response | None]


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


class LingeringTransport(asyncio.Transport):
    """A TCP transport whose `close` ends its own stream while the process is ending, and waits for the client's end.

    Closing a socket while bytes from the client are unread or in transit resets the connection. A reset also
    discards data that the client has not read yet, so the client may lose a reply that was sent in full (RFC 9112,
    section 9.6).
    """

    def __init__(self, inner: asyncio.Transport, is_ending: Callable[[], bool]) -> None:
        super().__init__()
        self._inner, self._is_ending, self._is_lingering = inner, is_ending, False
        for name in _PASSED_ON:
            setattr(self, name, getattr(inner, name))

    def close(self) -> None:
        """End the stream to the client, then close. Bytes that still arrive must be discarded."""
        if self.is_closing():
            return
        if not self._is_ending():
            self._inner.close()
            return
        self._is_lingering = True
        try:
            self._inner.write_eof()
            self._inner.resume_reading()  # else the end of the client's stream would not be noticed
        except (OSError, RuntimeError):  # the client has gone
            self._inner.close()
        else:
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._inner.close)

    def is_closing(self) -> bool:
        """Return whether the connection is closing, so that nothing is to be read or written any more."""
        return self._is_lingering or self._inner.is_closing()


class Stage(Enum):
    """The next event that a connection waits for."""

    FIRST_REQUEST = auto()
    NEXT_REQUEST = auto()
    REST_OF_REQUEST = auto()
    REPLY = auto()  # from the service
    REST_OF_REPLIED = auto()  # the rest of a request whose reply did not wait for it
    NOTHING = auto()  # malformed bytes were received, after which no request can be told from another


class Connection(H11Protocol):
    """A connection with deadlines, which uvicorn creates in place of its own protocol.

    Of `H11Protocol` it uses the constructor, methods and attributes without an underscore.
    """

    def __init__(self, table: ConnectionTable, refuse_at_once: Refuse, **uvicorn: Any) -> None:  # noqa: ANN401 (uvicorn's own arguments)
        super().__init__(**uvicorn)
        self._table, self._refuse_at_once, self._application = table, refuse_at_once, self.app
        self.app: Any = self._run_application  # uvicorn and Starlette have different types of scopes
        self.stage, self.since = Stage.FIRST_REQUEST, self.loop.time()
        self._unread_since: float | None = None
        self._held = b""  # received while a plain request is handled
        self._has_authorized_request = self._is_stopping = False
        self._key: str | None = None  # of its last authorized request

    @property
    def is_idle(self) -> bool:
        """Whether the connection waits for its next request."""
        return self.stage is Stage.NEXT_REQUEST

    @property
    def awaits_reply(self) -> bool:
        """Whether a request of the connection is being handled, and no reply waits for the client to read it."""
        return self.stage is Stage.REPLY and not self.unread()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Register the connection, or refuse it if the table is full."""
        super().connection_made(LingeringTransport(transport, lambda: self._table.is_ending))
        if not self._table.enter(self):
            self._refuse_connection(TooManyConnections())

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the table."""
        self._table.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes, unless the connection is closing."""
        if self.transport.is_closing():
            return
        if self._handles_plain:
            self._held += data
            self.flow.pause_reading()
        elif self._is_between_requests and (request := read_plain(data)) is not None:
            self._handle_plain(request)
        else:
            try:
                super().data_received(data)
            except h11.LocalProtocolError:  # the input cannot be parsed, and a reply has begun, so 400 cannot be sent
                self.abort()
        self._advance()

    def on_response_complete(self) -> None:
        """Begin with the next request. The reply is written to the transport, which may wait for the client to read."""
        super().on_response_complete()
        if self._held:
            data, self._held = self._held, b""
            self.data_received(data)
        self._advance()
        self._table.replied(self)

    def request_authorized(self, key: str | None) -> None:
        """Record that a request is authorized, with the name of its key."""
        # Once all of it was received, the connection is no longer replaced; see `ConnectionTable`.
        self._key = key
        if not self._has_authorized_request:
            self._has_authorized_request = True
            self._advance()

    def shutdown(self) -> None:
        """Close now or, if a request is in progress, after its reply; uvicorn's own version would lose requests."""
        # uvicorn calls this once it has stopped accepting.
        self._is_stopping = True
        self._advance()

    def unread(self) -> int:
        """Return the number of bytes of replies that the client has not read yet."""
        return self.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close at once, and discard what the client has not read."""
        self.transport.abort()

    def close_if_late(self, now: float) -> None:
        """Close the connection if its client has kept the service waiting for too long at `now`, a time of the loop."""
        if not self.unread():
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since > self._table.receive_seconds:
            self._table.count_refusal("unread")
            self.abort()
        if self.transport.is_closing() or now - self.since <= self._max_seconds():
            return
        if self.stage is Stage.REST_OF_REQUEST:
            self._table.count_refusal("receive_timeout")
            self._refuse_connection(RequestTimeout())
        else:  # there was no request, or its reply has been sent
            self.transport.close()

    def _max_seconds(self) -> float:
        """Return for how long the connection may wait in its stage."""
        if self.stage is Stage.REPLY:
            return math.inf
        if self.stage is Stage.NEXT_REQUEST:  # uvicorn's timer does not run if the reply did not wait for the request
            return self.timeout_keep_alive
        if self.stage is Stage.FIRST_REQUEST and self._is_stopping:  # it arrives within a round trip
            return min(_FIRST_REQUEST_SECONDS, self._table.receive_seconds)
        return self._table.receive_seconds

    def _advance(self) -> None:
        """Update the stage after an event. The deadline of a request starts with its first byte."""
        stage = self._parsed_stage()
        if stage is not self.stage:
            self.stage, self.since = stage, self.loop.time()
            if stage is Stage.NOTHING:
                self._table.count_refusal("malformed")
                if self.cycle is not None:
                    self.cycle.disconnected = True  # 400 was sent in place of its reply
        if stage is Stage.REPLY and self._has_authorized_request:
            self._table.authenticate(self, self._key)
        if self._is_stopping and stage in (Stage.NEXT_REQUEST, Stage.REST_OF_REPLIED):
            self.transport.close()

    @property
    def _handles_plain(self) -> bool:
        return isinstance(self.cycle, PlainCycle) and not self.cycle.response_complete

    @property
    def _is_between_requests(self) -> bool:
        """Whether h11 has no part of a request."""
        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def _handle_plain(self, request: PlainRequest) -> None:
        """Have the application reply to a request, as uvicorn does with one that h11 has parsed."""
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        self.cycle = PlainCycle(self, request)
        self.scope = self.cycle.scope
        self._advance()
        if not (self.flow.write_paused or self._table.is_ending):  # else it may have to wait, or is the last reply
            refusal = copy_context().run(self._refuse, request.body)
            if refusal is not None:
                self.cycle.reply(refusal)
                return
        task = self.loop.create_task(self.cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _refuse(self, body: bytes) -> Response | None:
        current_connection.set(self)
        return self._refuse_at_once(cast("Scope", self.scope), body)

    def _parsed_stage(self) -> Stage:
        if self._handles_plain:
            return Stage.REPLY
        client = self.conn.their_state
        if client is h11.IDLE:
            if self.conn.trailing_data[0]:
                return Stage.REST_OF_REQUEST
            return Stage.FIRST_REQUEST if self.cycle is None else Stage.NEXT_REQUEST
        if client is h11.SEND_BODY:
            return Stage.REST_OF_REPLIED if self.conn.our_state is h11.DONE else Stage.REST_OF_REQUEST
        return Stage.NOTHING if client is h11.ERROR else Stage.REPLY

    async def _run_application(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application. While the process is ending, a reply says that it is the last of its connection."""

        async def send_and_announce_end(message: Message) -> None:
            if message["type"] == "http.response.start" and self._table.is_ending and not self._has_next_request():
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        current_connection.set(self)
        await self._application(scope, receive, send_and_announce_end)

    def _has_next_request(self) -> bool:
        """Return whether a pipelined request was received, at least in part. It is handled so that it is not lost."""
        return bool(self._held) or (self.conn.their_state is h11.DONE and bool(self.conn.trailing_data[0]))

    def _refuse_connection(self, error: ApiError) -> None:
        """Close the connection after an error reply that is written past uvicorn, as there is no request."""
        self.transport.write(raw_reply(error, new_id()))
        self.transport.close()


# The connection of the request in progress, None if another server runs the application.
current_connection: ContextVar[Connection | None] = ContextVar("connection", default=None)
