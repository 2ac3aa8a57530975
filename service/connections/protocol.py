"""uvicorn's HTTP protocol, for clients who are slow, silent, greedy or no clients at all."""

import asyncio
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.connections.head import Head
from service.connections.refusals import HEADERS, MALFORMED, TOO_MANY, TOO_SLOW, Refusal, raw_reply
from service.connections.table import CONNECTIONS, Connections

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

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
        self._running: RequestResponseCycle | None = None
        self._whole = True  # the request that began last, if any
        self._head = Head(self._table.max_header_bytes)

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
        self._hang_up()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came. What follows a refusal is thrown away, so that the client can still read the reply."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._head.part(len(data), alone=self._whole)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # answered as if it had not been asked for, which HTTP allows
        except httptools.HttpParserError as error:
            self._refuse(HEADERS if isinstance(error.__context__, _HeadTooLargeError) else MALFORMED)
        else:
            if self._head.is_endless():
                self._refuse(HEADERS)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._head.begin()
        self._whole = False
        self._waiting_since = self.loop.time()

    def on_headers_complete(self) -> None:
        """The head is there. What is raised here reaches `data_received`, and the request goes no further."""
        if not self._head.end(self.url, self.headers):
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
            self._abort()
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
            self._abort()
        else:
            super().shutdown()

    def make_room(self) -> None:
        """End at once."""
        self._refused = True
        self._abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _hang_up(self) -> None:
        """Tell the request that is being answered. uvicorn tells the one that came last, which may wait for another."""
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _abort(self) -> None:
        self._hang_up()
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

    def _owes_another(self) -> bool:
        """Whether a whole request before this one is being answered, or a reply has begun."""
        return (
            bool(self.pipeline)
            or self._at_work()
            or (self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete)
        )

    def _has_replied(self) -> bool:
        """Whether the reply was sent before the body was there."""
        return self.cycle is not None and self.cycle.response_complete and not (self._whole or self._head.open)

    def _is_kept(self) -> bool:
        """Whether it is between two requests. uvicorn ends it then, unless something came that is no request."""
        return self._whole and self.cycle is not None

    def _give_up(self) -> None:
        if self._refused:  # answered before, and the client does not hang up
            self._abort()
        elif self._whole:  # nothing was asked
            self.transport.close()
        else:
            self._refuse(TOO_SLOW)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer and close, without a reset that would take the reply from the client's hands.

        Where the client waits for another reply, or has had that to what is wrong, there is none: it would be taken for
        the reply to something else.
        """
        self._refused = True
        self._table.count(refusal.reason)
        if self._owes_another() or self._has_replied():
            self._abort()
            return
        self._hang_up()
        self.transport.write(raw_reply(refusal, self.server_state.default_headers))
        self.transport.write_eof()
        self.flow.resume_reading()


class _HeadTooLargeError(Exception):
    """More headers, or longer ones, than are read."""
