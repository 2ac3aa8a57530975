"""The open connections of a process: how many there may be, and which of them makes room for a new one.

The server's protocol takes a place here for every connection (service/process/connection.py).
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

_log = logging.getLogger("taugate.connections")
CONNECTIONS = "connections"  # under which the application's lifespan state has the table, for the server's protocol
CONNECTION = "connection"  # under which a request's state has the connection that it came over
# A sixteenth of a pod of 1 GiB, and 15,000 of the usual replies of five documents with their texts. One reply more may
# be in memory, however long it is.
_MAX_UNREAD_BYTES = 64 << 20
_CHECKED_AT_ONCE = 500  # which takes some tenths of a millisecond; requests go first after that
_MAX_CHECK_SECONDS = 1.0  # between two checks: how much later than its deadline a connection may end
# A connection over which a request was admitted has its place for so long after a reply, however many clients wait for
# one. It is the keep-alive time of uvicorn, Node and Apache: a client in the middle of its work asks again sooner.
_MIN_IDLE_SECONDS = 5.0


class OpenConnection(Protocol):
    """A connection as the table sees it."""

    def end_if_late(self, now: float, seconds: float) -> None:
        """End the connection where its client has made the service wait for longer than `seconds`.

        Args:
            now: Time of the event loop in seconds.
        """
        ...

    def unread(self) -> int:
        """Return how many bytes of replies the client has not taken yet."""
        ...

    def abort(self) -> None:
        """End at once, with whatever the client has not read."""
        ...

    def close(self) -> None:
        """End after what was written."""
        ...


class ConnectionTable:
    """Connections by age; belongs to one event loop.

    A connection is unauthenticated until a request over it has been admitted. When all places are taken, a new
    connection gets the place of the oldest unauthenticated one, so that nobody without a key keeps others out. If
    requests have been admitted over all of them, it gets the place of the one that has been idle the longest, and is
    refused if that is less than five seconds.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Begin with no connection.

        Args:
            settings: `max_connections`, which is lowered where the process may open fewer files, and `receive_seconds`,
                the deadline of clients.
            metrics: Count connections and refusals.
        """
        self._max = connections_that_fit(settings.connections.max_connections)
        if self._max < settings.connections.max_connections:
            # The default fits few machines' limits, and is meant to be lowered; a number that was set is not.
            was_set = "max_connections" in settings.connections.model_fields_set
            _log.log(
                logging.WARNING if was_set else logging.INFO,
                "the limit of open files is too low for TAUGATE_MAX_CONNECTIONS; using fewer",
                extra={"fields": {"max_connections": settings.connections.max_connections, "using": self._max}},
            )
        self._seconds = settings.connections.receive_seconds
        self._metrics = metrics
        self._open: dict[OpenConnection, None] = {}
        self._unauthenticated: dict[OpenConnection, None] = {}
        self._idle: dict[OpenConnection, float] = {}  # those that wait for a further request, by the time of the reply
        self._unread: dict[OpenConnection, None] = {}  # that may have something to read, by the time of the last reply
        self._unread_bytes = 0  # at most what they have
        self.is_ending = False
        self._last_left = 0.0
        metrics.connections.set(0)

    def enter(self, connection: OpenConnection) -> bool:
        """Give a new connection a place, and return False where there is none."""
        if len(self._open) >= self._max:
            self.count_refusal("connections")
            if not self._make_room():
                return False
        self._open[connection] = self._unauthenticated[connection] = None
        return True

    def _make_room(self) -> bool:
        """End one of the connections, and return whether there was one to end."""
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
        """Return for how long there has been no connection since the end was announced, 0 while there is one."""
        return 0.0 if self._open else time.monotonic() - self._last_left

    def announce_end(self) -> None:
        """Have every reply from now on say that its connection closes: the process is about to stop."""
        self.is_ending = True
        self._last_left = time.monotonic()

    def idle(self, connection: OpenConnection, since: float) -> None:
        """Note that a connection waits for a further request.

        Args:
            since: Time of the event loop in seconds.
        """
        if connection in self._open:
            self._idle[connection] = since

    def busy(self, connection: OpenConnection) -> None:
        """Note that a further request has begun to come."""
        self._idle.pop(connection, None)

    def keep(self, connection: OpenConnection) -> None:
        """Let a connection keep its place, now that a request of it was admitted."""
        self._unauthenticated.pop(connection, None)

    def leave(self, connection: OpenConnection) -> None:
        """Free the place of a connection, if it has one."""
        if self.is_ending:
            self._last_left = time.monotonic()
        for each in (self._open, self._unauthenticated, self._idle, self._unread):
            each.pop(connection, None)

    def wrote(self, connection: OpenConnection, unread: int) -> None:
        """Note a reply that was written, and end connections where too many bytes of all wait to be read.

        Those end first whose last reply is the oldest, and never the one of this reply.

        Args:
            unread: Bytes that its client has not taken yet.
        """
        self._unread.pop(connection, None)
        self._unread[connection] = None
        self._unread_bytes += unread
        if self._unread_bytes <= _MAX_UNREAD_BYTES:
            return
        self._unread = {each: None for each in self._unread if each.unread()}
        self._unread_bytes = sum(each.unread() for each in self._unread)
        while self._unread_bytes > _MAX_UNREAD_BYTES and len(self._unread) > 1:
            slowest = next(iter(self._unread))
            self._unread_bytes -= slowest.unread()
            del self._unread[slowest]
            self.count_refusal("unread")
            slowest.abort()

    def count_refusal(self, reason: str) -> None:
        """Count a connection that was refused or ended.

        Args:
            reason: One of service.metrics.REFUSALS.
        """
        self._metrics.refused.labels(reason).inc()

    @asynccontextmanager
    async def checking_deadlines(self) -> AsyncIterator[None]:
        """Check every connection once a second, which costs requests less than a timer for each of them."""
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
