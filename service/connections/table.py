"""All connections of a process: no more than it can carry, and none that waits for ever for its client."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from service.connections.open_files import connections_that_fit
from service.metrics import Metrics
from service.settings import Settings

_log = logging.getLogger("taugate.connections")
CONNECTIONS = "connections"  # under which the application's lifespan leaves them to the server's protocol
_LOOKED_AT_ONCE = 500  # some tenths of a millisecond; requests go first after that
_MOST_SECONDS = 1.0  # between two looks: how much later than said a connection may end


class Connection(Protocol):
    """What the table asks of a connection."""

    def look(self, now: float, seconds: float) -> bool:
        """End if the client has made the service wait for `seconds`; whether it did."""

    def make_room(self) -> None:
        """End, as another needs the place."""


class Connections:
    """Connections by age. A stranger is one that has not sent a whole request yet.

    When all places are taken, a new connection has that of the oldest stranger, so that nobody who opens connections
    and asks nothing keeps others out; it is refused only where every one has asked something.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.max_header_bytes = settings.max_header_bytes
        self._most = connections_that_fit(settings.max_connections)
        if self._most < settings.max_connections:
            fields = {"wanted": settings.max_connections, "fit": self._most}
            _log.warning("this process may not open files enough for all connections", extra={"fields": fields})
        self._seconds = settings.receive_seconds
        self._metrics = metrics
        self._open: dict[Connection, None] = {}
        self._strangers: dict[Connection, None] = {}
        metrics.connections.set(0)

    def enter(self, connection: Connection) -> bool:
        """Take a place; False where there is none."""
        if len(self._open) >= self._most:
            self.count("connections")
            if not self._strangers:
                return False
            oldest = next(iter(self._strangers))
            self.leave(oldest)
            oldest.make_room()
        self._open[connection] = self._strangers[connection] = None
        return True

    def introduce(self, connection: Connection) -> None:
        """It has sent a whole request: a stranger no more."""
        self._strangers.pop(connection, None)

    def leave(self, connection: Connection) -> None:
        """Give the place back."""
        self._open.pop(connection, None)
        self._strangers.pop(connection, None)

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
                ended = connection in self._open and connection.look(loop.time(), self._seconds)
                if ended or number % _LOOKED_AT_ONCE == 0:  # to end one takes as long as to look at hundreds
                    await asyncio.sleep(0)
