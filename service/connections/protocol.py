"""uvicorn's HTTP protocol, for clients who are slow, silent, greedy or no clients at all."""

import asyncio
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.connections.refusals import HEADERS, MALFORMED, TOO_MANY, TOO_SLOW, Refusal, raw_reply
from service.connections.table import CONNECTIONS, Connections

_MOST_HEADERS = 100  # Apache's default
_MOST_PIPELINED = 100  # requests of one connection that wait for the one before; none of the usual clients sends two


class GuardedProtocol(HttpToolsProtocol):
    """One connection. Nothing of it is logged: the metrics count what is refused, and a stranger fills no disk."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._table: Connections = app_state[CONNECTIONS]
        self._waiting_since = self.loop.time()  # for the client to begin a request, or to end it
        self._kept = self.timeout_keep_alive + 1.0
        self._unread_since: float | None = None  # replies that the client did not take yet
        self._refused = False
        self._whole = True  # the request that began last, if any
        # Of a head that is not all there: bytes of what came since it began, and of the first part of that, where other
        # requests may lie before it.
        self._in_head = False
        self._came, self._first, self._chunk = 0, 0, 0
        self._alone = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Take a place, or say that there is none."""
        super().connection_made(transport)
        if not self._table.enter(self):
            self._refused = True
            transport.write(raw_reply(TOO_MANY, self.server_state.default_headers))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._table.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came. What follows a refusal is thrown away, so that the client can still read the reply."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._chunk, self._alone = len(data), self._whole
        if self._in_head:
            self._came += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # answered as if it had not been asked for, which HTTP allows
        except httptools.HttpParserError as error:
            self._refuse(HEADERS if isinstance(error.__context__, _HeadTooLargeError) else MALFORMED)
        else:
            if self._in_head and self._came - self._first > self._table.max_header_bytes:
                self._refuse(HEADERS)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._whole = True, False
        self._came = self._chunk
        self._first = 0 if self._alone else self._chunk
        self._alone = False
        self._waiting_since = self.loop.time()

    def on_headers_complete(self) -> None:
        """Raises _HeadTooLargeError. The head is measured only where it may be too long."""
        self._in_head = False
        most = self._table.max_header_bytes
        if len(self.headers) > _MOST_HEADERS or (self._came > most and self._head_bytes() > most):
            raise _HeadTooLargeError
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise ValueError("too many requests at once")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request is there."""
        self._whole = True
        self._table.introduce(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """A reply was written; its request may still be coming."""
        if self._whole:
            self._waiting_since = self.loop.time()
        super().on_response_complete()

    def look(self, now: float, seconds: float) -> bool:
        """End if the client took longer than `seconds` to send a request, or to take what was written."""
        if self._is_unread(now, seconds):
            self._table.count("unread")
            self.transport.abort()
            return True
        if self.transport.is_closing():
            return False
        if self.flow.read_paused:  # it is the service that takes its time
            self._waiting_since = now
        if self._at_work() or now - self._waiting_since <= (self._kept if self._is_kept() else seconds):
            return False
        self._give_up()
        return True

    def shutdown(self) -> None:
        """Nobody waits for a client that was refused."""
        if self._refused:
            self.transport.abort()
        else:
            super().shutdown()

    def make_room(self) -> None:
        """End at once."""
        self._refused = True
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn finds wrong, in the one shape of an error."""
        self._refuse(MALFORMED)

    def _is_unread(self, now: float, seconds: float) -> bool:
        """Whether something was waiting to be taken all the time since `seconds` ago."""
        if not self.transport.get_write_buffer_size():
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        return self._unread_since is not None and now - self._unread_since > seconds

    def _at_work(self) -> bool:
        """Whether a whole request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def _is_kept(self) -> bool:
        """Whether it is between two requests. uvicorn ends it then, unless something came that is no request."""
        return self._whole and self.cycle is not None

    def _give_up(self) -> None:
        if self._refused:  # answered before, and the client does not hang up
            self.transport.abort()
        elif self._whole:  # nothing was asked
            self.transport.close()
        else:
            self._refuse(TOO_SLOW)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer and close, without a reset that would take the reply from the client's hands.

        What is in hand before it is given up: its reply could be taken for this one.
        """
        self._refused = True
        self._table.count(refusal.reason)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started or not cycle.more_body:
                self.transport.abort()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        elif cycle is not None and refusal is TOO_SLOW and not self._in_head:  # it has had its reply, with body to come
            self.transport.abort()
            return
        self.transport.write(raw_reply(refusal, self.server_state.default_headers))
        self.transport.write_eof()
        self.flow.resume_reading()

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)


class _HeadTooLargeError(Exception):
    """More headers, or longer ones, than are read."""
