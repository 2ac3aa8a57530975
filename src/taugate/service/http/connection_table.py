"""The open connections of a process: a limit on their number, and which of them a new connection replaces."""

import asyncio
import logging
import time
from collections import Counter
from typing import Protocol

from taugate.service.metrics import Metrics
from taugate.service.runtime.resources import connections_that_fit
from taugate.service.settings import Settings

_log = logging.getLogger(__name__)
# A sixteenth of a pod of 1 GiB: 15,000 usual replies of five documents with their texts. One more reply of any length
# may be in memory.
_MAX_UNREAD_BYTES = 64 << 20
_CHECKED_AT_ONCE = 500  # takes some tenths of a millisecond, after which requests have priority
_MAX_CHECK_SECONDS = 1.0  # between two checks, and so the most that a connection may outlive its deadline
# A connection with an authorized request is not replaced before it has been idle for this long. It is the keep-alive
# time of uvicorn, Node and Apache: an active client sends its next request sooner.
_MIN_IDLE_SECONDS = 5.0
# Share of all connections that one key keeps in a full table, so that a single client cannot lock all others out.
_KEY_SHARE = 0.5


class _Connection(Protocol):
    """What the table needs of service/http/connection.py, which imports this file."""

    since: float

    @property
    def is_idle(self) -> bool: ...
    @property
    def awaits_reply(self) -> bool: ...
    def unread(self) -> int: ...
    def abort(self) -> None: ...
    def close_if_late(self, now: float) -> None: ...


class ConnectionTable:
    """Connections in the order in which new ones replace them; belongs to one event loop.

    A connection is unauthenticated until a request over it has been authorized, and remains so while its key has
    half of all connections. When the table is full, a new connection replaces the oldest unauthenticated one that
    the service does not owe a reply, so that neither clients without a key nor one client with a key can lock
    others out. If there is none, it replaces the authenticated one that has been idle the longest; it is refused if
    that one has been idle for less than five seconds.
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
        self.receive_seconds = settings.connections.receive_seconds  # deadline of clients
        self._metrics = metrics
        self._unauthenticated: dict[_Connection, None] = {}  # the oldest first
        # With the names of keys; the one with the oldest last reply comes first.
        self._authenticated: dict[_Connection, str | None] = {}
        self._connections_of: Counter[str | None] = Counter()  # authenticated ones, by key
        self._unread_bytes = 0  # upper bound of the bytes of replies that clients have not read
        # whether further replies are the last of their connections, because the process is about to stop
        self.is_ending = False
        self._last_left = 0.0
        metrics.connections.set(0)

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._unauthenticated) + len(self._authenticated)

    def enter(self, connection: _Connection) -> bool:
        """Register a new connection, and return False if it must be refused."""
        if len(self) >= self._max:
            self.count_refusal("connections")
            waiting = (connection for connection in self._unauthenticated if not connection.awaits_reply)
            replaced = next(waiting, None) or self._longest_idle()
            if replaced is None:
                return False
            self.leave(replaced)
            replaced.abort()
        self._unauthenticated[connection] = None
        return True

    def _longest_idle(self) -> _Connection | None:
        """Return the authenticated connection that has been idle the longest, None if its client may be active."""
        longest_idle = next((connection for connection in self._authenticated if connection.is_idle), None)
        if longest_idle is None or asyncio.get_running_loop().time() - longest_idle.since < _MIN_IDLE_SECONDS:
            return None
        return longest_idle

    def authenticate(self, connection: _Connection, key: str | None) -> None:
        """Record that a request was authorized: only if its connection is idle, a new connection replaces it."""
        # `key` is None if there are no keys, and all clients share the connections.
        shares = key is None or self._connections_of[key] < _KEY_SHARE * self._max
        if shares and connection in self._unauthenticated:
            del self._unauthenticated[connection]
            self._authenticated[connection] = key
            self._connections_of[key] += 1

    def replied(self, connection: _Connection) -> None:
        """Record a reply, and close other connections if the unread bytes of all exceed their limit."""
        # Those with the oldest last reply are closed first, unauthenticated ones before them.
        if connection in self._authenticated:
            self._authenticated[connection] = self._authenticated.pop(connection)
        unread = connection.unread()
        self._unread_bytes += unread
        if not unread or self._unread_bytes <= _MAX_UNREAD_BYTES:
            return
        slow = [other for other in self._open() if other.unread()]
        self._unread_bytes = sum(other.unread() for other in slow)
        for other in slow:
            if self._unread_bytes > _MAX_UNREAD_BYTES and other is not connection:
                self._unread_bytes -= other.unread()
                self.count_refusal("unread")
                other.abort()

    def leave(self, connection: _Connection) -> None:
        """Remove a connection, if it is in the table."""
        self._unauthenticated.pop(connection, None)
        if connection in self._authenticated:
            self._connections_of[self._authenticated.pop(connection)] -= 1
        self._last_left = time.monotonic()

    def announce_end(self) -> None:
        """Mark every further reply as the last of its connection, because the process is about to stop."""
        self.is_ending = True
        self._last_left = time.monotonic()

    def seconds_unused(self) -> float:
        """Return for how many seconds there has been no connection since `announce_end`, 0 while there is one."""
        return 0.0 if len(self) else time.monotonic() - self._last_left

    def count_refusal(self, reason: str) -> None:
        """Count a connection that was refused or closed, for one of the reasons in service.metrics.REFUSALS."""
        self._metrics.refused.labels(reason).inc()

    async def check_deadlines(self) -> None:
        """Check the deadline of every connection once a second, which is cheaper than a timer per request."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_MAX_CHECK_SECONDS, self.receive_seconds / 4))
            self._metrics.connections.set(len(self))
            for number, connection in enumerate(self._open(), 1):
                connection.close_if_late(loop.time())
                if number % _CHECKED_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _open(self) -> list[_Connection]:
        return [*self._unauthenticated, *self._authenticated]
