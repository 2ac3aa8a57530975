"""Redis clients with limits on the time and size of replies, and a circuit breaker for when Redis is failing.

redis-py has no option that limits the size of a reply, so its connections are subclassed here (docs/dependencies.md).
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

import redis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio import ConnectionPool as AsyncConnectionPool
from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection

_log = logging.getLogger(__name__)
# Size of the reply to a command or a pipeline. The state of the drift alarms has 70 kB; 770 kB with blocks of 10,000.
MAX_STATE_BYTES = 1 << 20
# The same for the cache. Positions and a vector, 4 bytes per number, have some 2 kB. Parsed bytes take thirty times as
# much memory.
MAX_CACHED_BYTES = 128 << 10
# Per process. A round trip on the loopback takes 0.2 ms, so 16 connections carry far more than an encoder needs.
_CONNECTIONS = 16
# Seconds after a failure: long enough that only one query in hundreds waits for a Redis that is down, short enough that
# a Redis that has recovered is used again within seconds.
_FIRST_PAUSE, _MAX_PAUSE = 0.5, 8.0


class _ReadBudget:
    """Number of bytes of a reply that may still be read; raises redis.ConnectionError if it is exceeded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.renew()

    def renew(self) -> None:
        """Start with the next reply."""
        self._remaining = self._limit

    def spend(self, size: int) -> None:
        """Count bytes that were read, or are about to be read."""
        self._remaining -= max(size, 0)
        if self._remaining < 0:
            raise redis.ConnectionError(f"the reply is longer than {self._limit:,} bytes")


class _LimitedSocket:
    """A socket that does not read a reply beyond its budget, nor for longer than twice the timeout."""

    def __init__(self, inner: socket.socket, timeout: float | None) -> None:
        self._inner, self._timeout = inner, timeout
        self._budget = _ReadBudget(MAX_STATE_BYTES)
        self._began = time.monotonic()

    def sendall(self, data: bytes) -> None:
        """Send a command, whose reply has a new budget."""
        self._budget.renew()
        self._began = time.monotonic()
        self._inner.sendall(data)

    def recv(self, size: int) -> bytes:
        """Read at most `size` bytes."""
        self._check_time()
        data = self._inner.recv(size)
        self._budget.spend(len(data))
        return data

    def recv_into(self, buffer: Any, *arguments: int) -> int:  # noqa: ANN401 (any buffer; hiredis reads this way)
        """Read into a buffer."""
        self._check_time()
        size = self._inner.recv_into(buffer, *arguments)
        self._budget.spend(size)
        return size

    def _check_time(self) -> None:
        """Raise TimeoutError if the whole reply takes too long; the socket's own timeout applies to each read.

        A non-blocking read only checks whether the connection is alive, perhaps long after the reply.
        """
        waits = self._inner.gettimeout() != 0
        if waits and self._timeout is not None and time.monotonic() - self._began > self._timeout:
            raise TimeoutError

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (any attribute of the socket)
        return getattr(self._inner, name)


class _LimitedReader:
    """A stream reader that does not read a reply beyond its budget; its callers have their own timeouts."""

    def __init__(self, inner: asyncio.StreamReader) -> None:
        self._inner, self._budget = inner, _ReadBudget(MAX_CACHED_BYTES)

    def renew(self) -> None:
        """Start with the next reply."""
        self._budget.renew()

    async def readexactly(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
        self._budget.spend(size)  # before waiting, because the stream buffers the bytes until all have arrived
        return await self._inner.readexactly(size)

    async def readline(self) -> bytes:
        """Read a line, which the stream itself limits to 64 KiB."""
        line = await self._inner.readline()
        self._budget.spend(len(line))
        return line

    async def read(self, size: int) -> bytes:
        """Read at most `size` bytes, as hiredis does."""
        data = await self._inner.read(size)
        self._budget.spend(len(data))
        return data

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (any attribute of the stream)
        return getattr(self._inner, name)


def limit_replies(pool: redis.ConnectionPool) -> redis.ConnectionPool:
    """Limit the size of replies on all connections that a pool opens from now on, and return the pool."""
    base: type[AbstractConnection] = pool.connection_class

    class LimitedConnection(base):  # type: ignore[misc,valid-type]
        """A connection with a `_LimitedSocket`. redis-py opens the socket in `_connect`, since version 3.0."""

        def _connect(self) -> Any:  # noqa: ANN401
            return _LimitedSocket(super()._connect(), self.socket_timeout)

    pool.connection_class = LimitedConnection
    return pool


def _limit_async_replies(pool: AsyncConnectionPool) -> AsyncConnectionPool:
    """Do the same as `limit_replies` for asyncio."""
    base: type[AsyncConnection] = pool.connection_class

    class LimitedAsyncConnection(base):  # type: ignore[misc,valid-type]
        """A connection with a `_LimitedReader` as `_reader`, from which redis-py's parsers read.

        `_reader` is a property, because a connection over a Unix socket sends its first commands within `_connect`,
        right after setting `_reader`. A TCP connection does so later.
        """

        @property
        def _reader(self) -> Any:  # noqa: ANN401
            """The limited stream reader, None if not connected."""
            return self._limited_reader

        @_reader.setter
        def _reader(  # pyright: ignore[reportIncompatibleVariableOverride] (redis-py sets it as an attribute)
            self, reader: asyncio.StreamReader | None
        ) -> None:
            self._limited_reader = None if reader is None else _LimitedReader(reader)

        async def _connect(self) -> None:
            try:
                await super()._connect()
            except redis.RedisError:  # else a Unix socket would remain open, with database 0 or the wrong user
                await self.disconnect()
                raise

        async def send_packed_command(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
            """Send a command, whose reply has a new budget."""
            if self.is_connected:
                self._reader.renew()
            await super().send_packed_command(*arguments, **options)

    pool.connection_class = LimitedAsyncConnection
    return pool


def connect(url: str, timeout: float) -> Redis:
    """Make a client for asyncio, which connects on first use.

    Args:
        url: URL with the scheme redis, rediss or unix.
        timeout: Longest wait for a connection, for a reply, and for a free connection, in seconds.

    Raises:
        ValueError: If the URL is malformed.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=_CONNECTIONS,
        timeout=timeout,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
    )
    return Redis.from_pool(_limit_async_replies(pool))


# Called with None when Redis starts to respond, and with the error when it stops.
OnChange = Callable[[Exception | None], None]


class CircuitBreaker:
    """Keeps callers from waiting for a failing Redis: after a failure, it is not used for a while.

    The pause doubles with each further failure. After the pause, a single caller tries on behalf of all. Usage:

        if breaker.allows():
            failures = breaker.failures
            ... send a command, then call breaker.succeeded() or breaker.failed(error, failures)
    """

    def __init__(
        self,
        on_change: OnChange,
        *,
        up: bool | None = None,
        first_pause: float = _FIRST_PAUSE,
        longest_pause: float = _MAX_PAUSE,
    ) -> None:
        """Start closed, so that every caller may use Redis.

        Args:
            on_change: Function that is called when Redis starts or stops responding.
            up: Whether Redis is assumed to be responding; if None, the first reply or failure counts as a change.
            first_pause: Pause after the first failure, in seconds.
            longest_pause: Longest pause, in seconds.
        """
        self._on_change, self._up = on_change, up
        self._first_pause, self._longest_pause = first_pause, longest_pause
        self._open_until = 0.0
        self.failures = 0  # since the last reply

    def allows(self) -> bool:
        """Return whether a caller may use Redis. If so, it must report the outcome."""
        now = time.monotonic()
        if now < self._open_until:
            return False
        if self.failures:  # this caller tries on behalf of all; unless it succeeds, the next one is after another pause
            self._open_until = now + self._pause()
        return True

    def succeeded(self) -> None:
        """Record that Redis replied."""
        self.failures, self._open_until = 0, 0.0
        if not self._up:
            self._up = True
            self._on_change(None)

    def failed(self, error: Exception, failures: int) -> None:
        """Record that Redis did not reply as expected.

        Args:
            error: The exception.
            failures: Number of failures when the command was sent. If it has changed since, another caller has already
                reported the failure.
        """
        if failures != self.failures:
            return
        self.failures += 1
        self._open_until = time.monotonic() + self._pause()
        if self._up is not False:
            self._up = False
            self._on_change(error)

    def _pause(self) -> float:
        return min(self._longest_pause, self._first_pause * float(2 ** min(self.failures - 1, 10)))


def log_changes(purpose: str, timeout: float, on_change: Callable[[bool], None] = lambda up: None) -> OnChange:
    """Return a function for CircuitBreaker that logs each change.

    Args:
        purpose: Use of Redis, for the log.
        timeout: Longest wait for a reply, in seconds, for the log.
        on_change: Function that is also called, with whether Redis is responding.
    """

    def changed(error: Exception | None) -> None:
        on_change(error is None)
        if error is None:
            _log.info("Redis is responding", extra={"fields": {"for": purpose}})
        else:
            fields = {"for": purpose, "reason": str(error) or f"no reply within {timeout * 1000:.0f} ms"}
            _log.warning(f"Redis is not responding; retrying within {_MAX_PAUSE:g} s", extra={"fields": fields})

    return changed
