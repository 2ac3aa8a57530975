"""The table of a process's open connections: it limits their number, and decides which one a new connection replaces.

The server's protocol registers every connection here (service/process/connection.py).
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from taugate.service.metrics import Metrics
from taugate.service.runtime.resources import connections_that_fit
from taugate.service.settings import Settings

_log = logging.getLogger(__name__)
CONNECTIONS = "connections"  # key of the table in the application's lifespan state, for the server's protocol
CONNECTION = "connection"  # key of a request's connection in the state of the request
# A sixteenth of a pod of 1 GiB: 15,000 usual replies of five documents with their texts. One more reply of any length
# may be in memory.
_MAX_UNREAD_BYTES = 64 << 20
_CHECKED_AT_ONCE = 500  # takes some tenths of a millisecond, after which requests have priority
_MAX_CHECK_SECONDS = 1.0  # between two checks, and so the most that a connection may outlive its deadline
# A connection with an authorized request is not replaced before it has been idle for this long. It is the keep-alive
# time of uvicorn, Node and Apache: an active client sends its next request sooner.
_MIN_IDLE_SECONDS = 5.0


class OpenConnection(Protocol):
    """A connection as the table sees it."""

    def end_if_late(self, now: float, seconds: float) -> None:
        """Close the connection if its client has kept the service waiting for longer than `seconds`.

        Args:
            now: Time of the event loop, in seconds.
            seconds: Deadline of clients.
        """
        ...

    def unread(self) -> int:
        """Return the number of bytes of replies that the client has not read yet."""
        ...

    def abort(self) -> None:
        """Close at once, and discard what the client has not read."""
        ...

    def close(self) -> None:
        """Close once all that was written has been sent."""
        ...


class ConnectionTable:
    """Connections by age; belongs to one event loop.

    A connection is unauthenticated until a request over it has been authorized. When the table is full, a new
    connection replaces the oldest unauthenticated one, so that clients without a key cannot lock others out. If all
    connections are authenticated, it replaces the one that has been idle the longest; it is refused if that one has
    been idle for less than five seconds.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Start with no connections; lower `max_connections` if the process may not open as many files."""
        self._max = connections_that_fit(settings.connections.max_connections)
        if self._max < settings.connections.max_connections:
            # The default exceeds the limit of many machines and is meant to be lowered; a number that was set is not.
            was_set = "max_connections" in settings.connections.model_fields_set
            _log.log(
                logging.WARNING if was_set else logging.INFO,
                f"open-file limit is too low for TAUGATE_MAX_CONNECTIONS; using {self._max:,}",
                extra={"fields": {"max_connections": settings.connections.max_connections, "using": self._max}},
            )
        self._seconds = settings.connections.receive_seconds
        self._metrics = metrics
        self._open: dict[OpenConnection, None] = {}
        self._unauthenticated: dict[OpenConnection, None] = {}
        self._idle: dict[OpenConnection, float] = {}  # waiting for the next request, in the order of their last reply
        self._unread: dict[OpenConnection, None] = {}  # may have unread bytes, in the order of their last reply
        self._unread_bytes = 0  # upper bound of these bytes
        self.is_ending = False
        self._last_left = 0.0
        metrics.connections.set(0)

    def enter(self, connection: OpenConnection) -> bool:
        """Register a new connection, and return False if it must be refused."""
        if len(self._open) >= self._max:
            self.count_refusal("connections")
            if not self._make_room():
                return False
        self._open[connection] = self._unauthenticated[connection] = None
        return True

    def _make_room(self) -> bool:
        """Close one of the connections, and return False if none may be closed."""
        if self._unauthenticated:
            oldest = next(iter(self._unauthenticated))
            self.leave(oldest)
            oldest.abort()
            return True
        longest_idle, since = next(iter(self._idle.items()), (None, 0.0))
        if longest_idle is None or asyncio.get_running_loop().time() - since < _MIN_IDLE_SECONDS:
            return False
        self.leave(longest_idle)
        longest_idle.close()
        return True

    def seconds_unused(self) -> float:
        """Return for how many seconds there has been no connection since `announce_end`, 0 while there is one."""
        return 0.0 if self._open else time.monotonic() - self._last_left

    def announce_end(self) -> None:
        """Mark every further reply as the last of its connection, because the process is about to stop."""
        self.is_ending = True
        self._last_left = time.monotonic()

    def idle(self, connection: OpenConnection, since: float) -> None:
        """Record that a connection waits for its next request, since a time of the event loop in seconds."""
        if connection in self._open:
            self._idle[connection] = since

    def busy(self, connection: OpenConnection) -> None:
        """Record that the next request of a connection has begun to arrive."""
        self._idle.pop(connection, None)

    def authenticated(self, connection: OpenConnection) -> None:
        """Record that a request of a connection was authorized: new connections no longer replace it."""
        self._unauthenticated.pop(connection, None)

    def leave(self, connection: OpenConnection) -> None:
        """Remove a connection, if it is in the table."""
        if self.is_ending:
            self._last_left = time.monotonic()
        for connections in (self._open, self._unauthenticated, self._idle, self._unread):
            connections.pop(connection, None)

    def wrote(self, connection: OpenConnection, unread: int) -> None:
        """Record a reply, and close connections if the unread bytes of all exceed the limit.

        The connections with the oldest last reply are closed first, but never this one.

        Args:
            connection: The connection that the reply was written to.
            unread: Bytes that its client has not read yet.
        """
        self._unread.pop(connection, None)
        self._unread[connection] = None
        self._unread_bytes += unread
        if self._unread_bytes <= _MAX_UNREAD_BYTES:
            return
        self._unread = {slow: None for slow in self._unread if slow.unread()}
        self._unread_bytes = sum(slow.unread() for slow in self._unread)
        while self._unread_bytes > _MAX_UNREAD_BYTES and len(self._unread) > 1:
            slowest = next(iter(self._unread))
            self._unread_bytes -= slowest.unread()
            del self._unread[slowest]
            self.count_refusal("unread")
            slowest.abort()

    def count_refusal(self, reason: str) -> None:
        """Count a connection that was refused or closed, for one of the reasons in service.metrics.REFUSALS."""
        self._metrics.refused.labels(reason).inc()

    @asynccontextmanager
    async def checking_deadlines(self) -> AsyncIterator[None]:
        """Check the deadline of every connection once a second, which is cheaper than a timer per request."""
        task = asyncio.ensure_future(self._check_deadlines())
        try:
            yield
        finally:
            task.cancel()

    async def _check_deadlines(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_MAX_CHECK_SECONDS, self._seconds / 4))
            self._metrics.connections.set(len(self._open))
            for number, connection in enumerate([*self._open], 1):
                if connection in self._open:
                    connection.end_if_late(loop.time(), self._seconds)
                if number % _CHECKED_AT_ONCE == 0:
                    await asyncio.sleep(0)
