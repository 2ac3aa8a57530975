"""ASGI's side of a connection: tells it how far each request is."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taugate.service.metrics import Metrics
from taugate.service.runtime.resources import connections_that_fit
from taugate.service.settings import Settings

_log = logging.getLogger("taugate.connections")
CONNECTIONS = "connections"  # under which the application's lifespan leaves them to the server's protocol
CONNECTION = "connection"  # under which a request's state has the connection that it came over
# A sixteenth of a pod of 1 GiB, and 15,000 of the usual replies of five documents with their texts. One reply more may
# be in memory, however long it is.
_MOST_UNREAD_BYTES = 64 << 20
_LOOKED_AT_ONCE = 500  # some tenths of a millisecond; requests go first after that
_MOST_SECONDS = 1.0  # between two looks: how much later than said a connection may end


class Connection(Protocol):
    """What the table asks of a connection."""

    def look(self, now: float, seconds: float) -> None:
        """End where the client has made the service wait for longer than `seconds`."""

    def unread(self) -> int:
        """Bytes of replies that the client has not taken yet."""

    def abort(self) -> None:
        """End at once."""


class Connections:
    """Connections by age. A stranger is one over which no request has been admitted yet.

    When all places are taken, a new connection has that of the oldest stranger, so that nobody keeps others out who
    has no key; it is refused only where every one of them has been admitted.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._most = connections_that_fit(settings.connections.max_connections)
        if self._most < settings.connections.max_connections:
            fields = {"wanted": settings.connections.max_connections, "fit": self._most}
            _log.warning("this process may not open files enough for all connections", extra={"fields": fields})
        self._seconds = settings.connections.receive_seconds
        self._metrics = metrics
        self._open: dict[Connection, None] = {}
        self._strangers: dict[Connection, None] = {}
        self._unread: dict[Connection, None] = {}  # who may still have something to read, by the time of the last reply
        self._unread_bytes = 0  # at most what they have
        metrics.connections.set(0)

    def enter(self, connection: Connection) -> bool:
        """Take a place; False where there is none."""
        if len(self._open) >= self._most:
            self.count("connections")
            if not self._strangers:
                return False
            oldest = next(iter(self._strangers))
            self.leave(oldest)
            oldest.abort()
        self._open[connection] = self._strangers[connection] = None
        return True

    def introduce(self, connection: Connection) -> None:
        """A request of it was admitted: a stranger no more."""
        self._strangers.pop(connection, None)

    def leave(self, connection: Connection) -> None:
        """Give the place back."""
        for each in (self._open, self._strangers, self._unread):
            each.pop(connection, None)

    def wrote(self, connection: Connection, unread: int) -> None:
        """A reply was written. Where too many bytes of all wait to be read, those that wait longest are given up."""
        self._unread.pop(connection, None)
        self._unread[connection] = None
        self._unread_bytes += unread
        if self._unread_bytes <= _MOST_UNREAD_BYTES:
            return
        self._unread = {each: None for each in self._unread if each.unread()}
        self._unread_bytes = sum(each.unread() for each in self._unread)
        while self._unread_bytes > _MOST_UNREAD_BYTES and len(self._unread) > 1:
            slowest = next(iter(self._unread))
            self._unread_bytes -= slowest.unread()
            del self._unread[slowest]
            self.count("unread")
            slowest.abort()

    def count(self, reason: str) -> None:
        """Count what was refused, by reason."""
        self._metrics.refused.labels(reason).inc()

    @asynccontextmanager
    async def looked_after(self) -> AsyncIterator[None]:
        """Has every connection looked at once a second, which costs requests less than a timer for each of them."""
        task = asyncio.ensure_future(self._look())
        try:
            yield
        finally:
            task.cancel()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_MOST_SECONDS, self._seconds / 4))
            self._metrics.connections.set(len(self._open))
            for number, connection in enumerate([*self._open], 1):
                if connection in self._open:
                    connection.look(loop.time(), self._seconds)
                if number % _LOOKED_AT_ONCE == 0:
                    await asyncio.sleep(0)


class Accounting:
    """Pure ASGI middleware, for requests that came over a `Connection`; the outermost, so that no reply goes unseen."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        connection = scope.get("state", {}).get(CONNECTION)
        if scope["type"] != "http" or connection is None:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        connection.asked(whole=b"transfer-encoding" not in headers and headers.get(b"content-length", b"0") == b"0")

        async def receive_and_tell() -> Message:
            message = await receive()
            if not message.get("more_body"):
                connection.received()
            return message

        async def send_and_tell(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                connection.replied()

        await self._app(scope, receive_and_tell, send_and_tell)
