"""Redis as the service uses it: clients that never wait or read for long, and a circuit breaker for when it is ill.

redis-py has no option that bounds the size of an answer, so its connections are subclassed here (docs/dependencies.md).
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

_log = logging.getLogger("taugate.redis")
# Of the answer to one command, or to a pipeline. The state of the drift alarms has 70 kB; 770 kB with blocks of 10,000.
MAX_STATE_BYTES = 1 << 20
# Of the cache: positions and a vector, 4 bytes a number, are some 2 kB. Parsed, bytes take thirty times as much memory.
MAX_CACHED_BYTES = 128 << 10
# Connections of one process. A round trip on the loopback takes .2 ms, so that 16 carry far more than an encoder needs.
_CONNECTIONS = 16
# After a failure: long enough that a Redis which is down costs one query in hundreds its timeout, short enough that
# one which came back is in use within seconds.
_FIRST_PAUSE, _MAX_PAUSE = 0.5, 8.0


class _ReadBudget:
    """Bytes of an answer that may still be read; raises redis.ConnectionError when more are."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.renew()

    def renew(self) -> None:
        """Begin the next answer."""
        self._left = self._limit

    def spend(self, size: int) -> None:
        """Count bytes that are read, or are about to be."""
        self._left -= max(size, 0)
        if self._left < 0:
            raise redis.ConnectionError(f"it answers more than {self._limit:,} bytes")


class _LimitedSocket:
    """A socket that reads no answer beyond the budget, nor for longer than twice the timeout."""

    def __init__(self, inner: socket.socket, timeout: float | None) -> None:
        self._inner, self._timeout = inner, timeout
        self._budget = _ReadBudget(MAX_STATE_BYTES)
        self._began = time.monotonic()

    def sendall(self, data: bytes) -> None:
        """Send a command; what is read after it is another answer."""
        self._budget.renew()
        self._began = time.monotonic()
        self._inner.sendall(data)

    def recv(self, size: int) -> bytes:
        """Read at most `size` bytes."""
        self._check_time()
        data = self._inner.recv(size)
        self._budget.spend(len(data))
        return data

    def recv_into(self, buffer: Any, *arguments: int) -> int:  # noqa: ANN401 (whatever takes bytes; hiredis reads so)
        """Read into a buffer."""
        self._check_time()
        size = self._inner.recv_into(buffer, *arguments)
        self._budget.spend(size)
        return size

    def _check_time(self) -> None:
        """Raise TimeoutError for an answer that takes too long as a whole: the socket's timeout is for each read.

        A read that does not wait only checks whether the connection is alive, perhaps long after the answer.
        """
        waits = self._inner.gettimeout() != 0
        if waits and self._timeout is not None and time.monotonic() - self._began > self._timeout:
            raise TimeoutError

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (all else is the socket's own)
        return getattr(self._inner, name)


class _LimitedReader:
    """A stream reader that reads no answer beyond the budget; its callers have timeouts of their own."""

    def __init__(self, inner: asyncio.StreamReader) -> None:
        self._inner, self._budget = inner, _ReadBudget(MAX_CACHED_BYTES)

    def renew(self) -> None:
        """Begin the next answer."""
        self._budget.renew()

    async def readexactly(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
        self._budget.spend(size)  # before they are waited for: the stream keeps them until all are there
        return await self._inner.readexactly(size)

    async def readline(self) -> bytes:
        """Read a line; the stream limits one to 64 KiB by itself."""
        line = await self._inner.readline()
        self._budget.spend(len(line))
        return line

    async def read(self, size: int) -> bytes:
        """Read at most `size` bytes, as hiredis does."""
        data = await self._inner.read(size)
        self._budget.spend(len(data))
        return data

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (all else is the stream's own)
        return getattr(self._inner, name)


def limit_answers(pool: redis.ConnectionPool) -> redis.ConnectionPool:
    """Bound what the connections of a pool read, and return the pool.

    Args:
        pool: Of connections by TCP, with TLS, or by a Unix socket; those that it opens from now on are bounded.
    """
    base: type[AbstractConnection] = pool.connection_class

    class LimitedConnection(base):  # type: ignore[misc,valid-type]
        """redis-py has no limit of its own to set; `_connect` is where it opens the socket, since 3.0."""

        def _connect(self) -> Any:  # noqa: ANN401
            return _LimitedSocket(super()._connect(), self.socket_timeout)

    pool.connection_class = LimitedConnection
    return pool


def _limit_async_answers(pool: AsyncConnectionPool) -> AsyncConnectionPool:
    """Do as `limit_answers` for asyncio."""
    base: type[AsyncConnection] = pool.connection_class

    class LimitedAsyncConnection(base):  # type: ignore[misc,valid-type]
        """redis-py's parsers read from `_reader`.

        A property, because a connection by a Unix socket begins to talk to Redis inside `_connect`, right after it has
        set `_reader`; one by TCP does so later.
        """

        @property
        def _reader(self) -> Any:  # noqa: ANN401
            """The stream reader with its limit, None while there is no connection."""
            return self._limited_reader

        @_reader.setter
        def _reader(  # pyright: ignore[reportIncompatibleVariableOverride] (redis-py sets it as an attribute)
            self, reader: asyncio.StreamReader | None
        ) -> None:
            self._limited_reader = None if reader is None else _LimitedReader(reader)

        async def _connect(self) -> None:
            try:
                await super()._connect()
            except redis.RedisError:  # else one by a Unix socket stays open, in database 0 or without its user
                await self.disconnect()
                raise

        async def send_packed_command(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
            """Send a command; what is read after it is another answer."""
            if self.is_connected:
                self._reader.renew()
            await super().send_packed_command(*arguments, **options)

    pool.connection_class = LimitedAsyncConnection
    return pool


def connect(url: str, timeout: float) -> Redis:
    """Make a client for asyncio, which connects when it is first used.

    Args:
        url: Redis://, rediss:// or unix://.
        timeout: Seconds for connecting, for an answer, and for a free connection.

    Raises:
        ValueError: For what is no URL.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=_CONNECTIONS,
        timeout=timeout,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
    )
    return Redis.from_pool(_limit_async_answers(pool))


# Is told when Redis begins to answer (None) and when it stops (with the error).
OnChange = Callable[[Exception | None], None]


class CircuitBreaker:
    """Keeps callers from waiting for a Redis that is ill: after a failure nobody asks it for a while.

    The pause doubles with each further failure; after it a single caller asks for all. A caller does this:

        if breaker.allows():
            failures = breaker.failures
            ... ask, and then either breaker.succeeded() or breaker.failed(error, failures)
    """

    def __init__(
        self,
        on_change: OnChange,
        *,
        up: bool | None = None,
        first_pause: float = _FIRST_PAUSE,
        longest_pause: float = _MAX_PAUSE,
    ) -> None:
        """Begin closed, so that anybody may ask.

        Args:
            on_change: Is told when Redis begins or stops to answer.
            up: Whether it is taken to answer already, None where the first answer or failure is a change.
            first_pause: Seconds.
            longest_pause: Seconds.
        """
        self._on_change, self._up = on_change, up
        self._first_pause, self._longest_pause = first_pause, longest_pause
        self._open_until = 0.0
        self.failures = 0  # since it answered last

    def allows(self) -> bool:
        """Tell whether a caller may ask, which then has to say how that went."""
        now = time.monotonic()
        if now < self._open_until:
            return False
        if self.failures:  # this caller asks for all: the next one only after another pause, unless it is answered
            self._open_until = now + self._pause()
        return True

    def succeeded(self) -> None:
        """Note that Redis answered."""
        self.failures, self._open_until = 0, 0.0
        if not self._up:
            self._up = True
            self._on_change(None)

    def failed(self, error: Exception, failures: int) -> None:
        """Note that Redis did not answer as it should.

        Args:
            error: What was raised.
            failures: The number of them when it was asked. Where that has changed since, another caller has found out
                already.
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
        purpose: What Redis is used for.
        timeout: Seconds after which an answer is given up.
        on_change: Is told as well whether Redis answers.
    """

    def changed(error: Exception | None) -> None:
        on_change(error is None)
        if error is None:
            _log.info("Redis answers", extra={"fields": {"for": purpose}})
        else:
            reason = str(error) or f"no answer within {timeout * 1000:.0f} ms"
            fields = {"for": purpose, "reason": reason}
            _log.warning("Redis does not answer and is left alone for a while", extra={"fields": fields})

    return changed
