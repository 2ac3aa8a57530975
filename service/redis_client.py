"""A Redis that requests wait for: connections that never try for long, and when to leave it alone, as it is ill."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

import redis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection

# In the answer to one command, or to a pipeline. The state of the drift alarms has 70 kB; 770 kB with blocks of 10,000.
MOST_OF_A_STATE = 1 << 20
# Of the cache: positions and a vector, 4 bytes a number, are some 2 kB. Parsed, bytes take thirty times as much memory.
MOST_CACHED = 128 << 10


class _Allowance:
    """Bytes that may still be read. Raises redis.ConnectionError when there are none left."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.renew()

    def renew(self) -> None:
        """For the next answer."""
        self.left = self._most

    def take(self, size: int) -> None:
        """Count bytes that are read, or are about to be."""
        self.left -= max(size, 0)
        if self.left < 0:
            raise redis.ConnectionError(f"it answers more than {self._most:,} bytes")


class _Socket:
    """A socket from which no answer is read beyond the limit, nor for longer than twice the timeout."""

    def __init__(self, inner: socket.socket, seconds: float | None) -> None:
        self._inner, self._seconds = inner, seconds
        self._allowance = _Allowance(MOST_OF_A_STATE)
        self._began = time.monotonic()

    def sendall(self, data: bytes) -> None:
        """Ask; what follows is another answer."""
        self._allowance.renew()
        self._began = time.monotonic()
        self._inner.sendall(data)

    def recv(self, size: int) -> bytes:
        """Read at most `size` bytes."""
        self._in_time()
        data = self._inner.recv(size)
        self._allowance.take(len(data))
        return data

    def recv_into(self, buffer: Any, *arguments: int) -> int:  # noqa: ANN401 (whatever takes bytes; hiredis reads so)
        """The same into a buffer."""
        self._in_time()
        size = self._inner.recv_into(buffer, *arguments)
        self._allowance.take(size)
        return size

    def _in_time(self) -> None:
        """An answer of which a byte comes now and then would never be too late for the socket's own timeout.

        Whoever does not wait at all looks whether the connection is still there, which may be long after the answer.
        """
        waits = self._inner.gettimeout() != 0
        if waits and self._seconds is not None and time.monotonic() - self._began > self._seconds:
            raise TimeoutError

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (all else is the socket's own)
        return getattr(self._inner, name)


class _Reader:
    """The same for asyncio, whose timeouts are those of the caller."""

    def __init__(self, inner: asyncio.StreamReader) -> None:
        self._inner, self._allowance = inner, _Allowance(MOST_CACHED)

    def renew(self) -> None:
        """What is read from now on is another answer."""
        self._allowance.renew()

    async def readexactly(self, size: int) -> bytes:
        """Exactly so many bytes."""
        self._allowance.take(size)  # before they are waited for: the stream keeps them until all are there
        return await self._inner.readexactly(size)

    async def readline(self) -> bytes:
        """A line; the stream has its own limit of 64 KiB for one."""
        line = await self._inner.readline()
        self._allowance.take(len(line))
        return line

    async def read(self, size: int) -> bytes:
        """At most so many bytes, as hiredis reads."""
        data = await self._inner.read(size)
        self._allowance.take(len(data))
        return data

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (all else is the stream's own)
        return getattr(self._inner, name)


def limited(pool: redis.ConnectionPool) -> redis.ConnectionPool:
    """The pool, whose connections are limited from now on; whether to TCP, with TLS, or to a Unix socket."""
    base: type[AbstractConnection] = pool.connection_class

    class Limited(base):  # type: ignore[misc,valid-type]
        """redis-py has no limit of its own to set; `_connect` is where it opens the socket, since 3.0."""

        def _connect(self) -> Any:  # noqa: ANN401
            return _Socket(super()._connect(), self.socket_timeout)

    pool.connection_class = Limited
    return pool


def limited_async(pool: redis.asyncio.ConnectionPool) -> redis.asyncio.ConnectionPool:
    """The same for asyncio."""
    base: type[AsyncConnection] = pool.connection_class

    class Limited(base):  # type: ignore[misc,valid-type]
        """As above; asyncio's reader is in `_reader`, where the parsers of redis-py take it from."""

        async def _connect(self) -> None:
            await super()._connect()
            self._reader: Any = _Reader(self._reader)

        async def send_packed_command(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
            """Ask."""
            if self.is_connected:
                self._reader.renew()
            await super().send_packed_command(*arguments, **options)

    pool.connection_class = Limited
    return pool


_log = logging.getLogger("taugate.redis")
# Connections of one process. A round trip on the loopback takes .2 ms, so that 16 carry far more than an encoder needs.
_CONNECTIONS = 16
# After a failure: long enough that a Redis which is down costs one query in hundreds its timeout, short enough that
# one which came back is in use within seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0


def connect(url: str, timeout: float) -> Redis:
    """A client that waits for nothing longer than `timeout` seconds. Raises ValueError for what is no URL."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=_CONNECTIONS,
        timeout=timeout,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
    )
    return Redis.from_pool(limited_async(pool))


class Breaker:
    """After a failure, a pause that doubles with each further one; then a single query asks again.

    what: what Redis is used for, for the log; timeout: seconds after which it counts as failed; on_change: is told
    whether it answers. Of one event loop.
    """

    def __init__(self, what: str, timeout: float, on_change: Callable[[bool], None] = lambda _: None) -> None:
        self._what, self._timeout, self._on_change = what, timeout, on_change
        self._up: bool | None = None
        self.failures = 0  # since it answered last
        self._closed_until = 0.0

    def may_ask(self) -> bool:
        """Whether this query may ask. Each that may says afterwards whether it was answered."""
        now = asyncio.get_running_loop().time()
        if now < self._closed_until:
            return False
        if self.failures:  # this query asks for all: the next one only after another pause, unless it is answered
            self._closed_until = now + self._pause()
        return True

    def answered(self) -> None:
        """Redis is well."""
        self.failures, self._closed_until = 0, 0.0
        if not self._up:
            self._up = True
            self._on_change(True)
            _log.info("Redis answers", extra={"fields": {"for": self._what}})

    def failed(self, error: Exception, failures: int) -> None:
        """Redis is ill; failures: how many there were when it was asked."""
        if failures != self.failures:  # another query has found out already
            return
        self.failures += 1
        self._closed_until = asyncio.get_running_loop().time() + self._pause()
        if self._up is not False:
            self._up = False
            self._on_change(False)
            reason = str(error) or f"no answer within {self._timeout * 1000:.0f} ms"
            fields = {"for": self._what, "reason": reason}
            _log.warning("Redis does not answer and is left alone for a while", extra={"fields": fields})

    def _pause(self) -> float:
        return min(_LONGEST_PAUSE, _FIRST_PAUSE * float(2 ** min(self.failures - 1, 10)))
