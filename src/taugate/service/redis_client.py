"""Clients of Redis with limits on the time and size of replies, and a circuit breaker for when Redis is failing.

redis-py has no option that limits the size of a reply. Here its parsers read from a limited stream, by public methods
of its connections and parsers (docs/dependencies.md).
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from statistics import median
from typing import Any

import redis
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

_log = logging.getLogger(__name__)
# Size of the reply to a command or a pipeline. The state of the drift alarms has 70 kB; 770 kB with blocks of 10,000.
MAX_STATE_BYTES = 1 << 20
# The same for the cache. Positions and a vector, 4 bytes per number, have some 2 kB. Parsed bytes take thirty times as
# much memory.
MAX_CACHED_BYTES = 128 << 10
# Per client. A round trip on the loopback takes 0.2 ms, so 16 connections carry far more than an encoder needs.
_CONNECTIONS = 16
# Seconds after a failure: long enough that only one query in hundreds waits for a Redis that is down, short enough that
# a Redis that has recovered is used again within seconds.
_FIRST_PAUSE, _MAX_PAUSE = 0.5, 8.0
# Longest deadline in seconds that slow replies lead to, and the number of replies that decide.
_MAX_DEADLINE, _REPLIES = 0.05, 33


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


class _LimitedReader:
    """A stream reader that does not read a reply beyond its budget; redis-py limits the time of each reply."""

    def __init__(self, inner: asyncio.StreamReader, budget: _ReadBudget) -> None:
        self._inner, self._budget = inner, budget

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


class _LimitedView:
    """A connection as its parser sees it, with a `_LimitedReader` in place of the stream reader."""

    def __init__(self, connection: AbstractConnection, budget: _ReadBudget) -> None:
        self._connection, self._budget = connection, budget
        self.is_limited = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (any attribute of the connection)
        value = getattr(self._connection, name)
        if not isinstance(value, asyncio.StreamReader):
            return value
        self.is_limited = True
        return _LimitedReader(value, self._budget)


def _limit_replies(pool: ConnectionPool, limit: int) -> None:
    """Limit the replies on all connections that a pool opens to a number of bytes."""
    base: type[AbstractConnection] = pool.connection_class

    class LimitedConnection(base):  # type: ignore[misc,valid-type]
        """A connection whose parser, whichever redis-py chooses, reads from a `_LimitedReader`."""

        def set_parser(self, parser_class: Any) -> None:  # noqa: ANN401 (redis-py's classes of parsers are private)
            """Make a parser of a subclass that sees the connection as a `_LimitedView`."""
            budget = self.reply_budget = _ReadBudget(limit)

            class LimitedParser(parser_class):  # type: ignore[misc]
                def on_connect(self, connection: AbstractConnection) -> None:
                    view = _LimitedView(connection, budget)
                    super().on_connect(view)
                    if not view.is_limited:
                        raise redis.ConnectionError("this version of redis-py does not let its replies be limited")

            super().set_parser(LimitedParser)

        async def connect(self) -> None:
            """Connect, unless connected; a lookup of the host that fails after the deadline leaves no error behind."""
            if not self.is_connected and (host := getattr(self, "host", None)) is not None:
                lookup = asyncio.ensure_future(asyncio.get_running_loop().getaddrinfo(host, self.port))
                lookup.add_done_callback(lambda done: done.cancelled() or done.exception())
                await asyncio.shield(lookup)
            await super().connect()

        async def send_packed_command(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
            """Send a command, whose reply has a new budget."""
            self.reply_budget.renew()
            await super().send_packed_command(*arguments, **options)

    pool.connection_class = LimitedConnection


class Deadline:
    """How long to wait for Redis: three times the median of its latest replies, within bounds.

    So a Redis, or a process, under load is not taken for a failing one.
    """

    def __init__(self, shortest: float) -> None:
        """Begin with the shortest deadline, in seconds."""
        self._shortest, self.longest = shortest, max(shortest, _MAX_DEADLINE)
        self._replies: deque[float] = deque(maxlen=_REPLIES)
        self.seconds = shortest

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Limit the time of the body, which is measured; raises TimeoutError after the deadline."""
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self.seconds):
                yield
            self._observe(time.perf_counter() - began)
        except TimeoutError:  # Redis takes longer than that, or is down: then the circuit breaker keeps callers away
            self._observe(self.seconds)
            raise

    def _observe(self, seconds: float) -> None:
        self._replies.append(seconds)
        self.seconds = min(max(3 * median(self._replies), self._shortest), self.longest)


def connect_redis(url: str, timeout: float, max_reply_bytes: int) -> Redis:
    """Make a client for one event loop, which connects on first use; raises ValueError if the URL is malformed."""
    # It waits at most `timeout` seconds for a connection, for a free connection, and for a reply to a command or
    # pipeline of at most `max_reply_bytes`.
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=_CONNECTIONS,
        timeout=timeout,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
    )
    _limit_replies(pool, max_reply_bytes)
    return Redis.from_pool(pool)


# Called with None when Redis starts to respond, and with the error when it stops.
OnChange = Callable[[Exception | None], None]


class RedisUnavailable(Exception):
    """Redis did not reply as expected, or was not `tried` because it had failed before."""

    def __init__(self, *, tried: bool) -> None:
        super().__init__("Redis is not responding")
        self.tried = tried


class CircuitBreaker:
    """Keeps callers from waiting for a failing Redis: after a failure, it is not used for a while.

    The pause doubles with each further failure. After the pause, a single caller tries on behalf of all.
    """

    def __init__(
        self,
        on_change: OnChange,
        *,
        up: bool | None = None,
        first_pause: float = _FIRST_PAUSE,
        longest_pause: float = _MAX_PAUSE,
    ) -> None:
        """Start closed, so that every caller may use Redis; pauses are in seconds.

        `up` is whether Redis is assumed to be responding; if None, the first reply or failure counts as a change.
        """
        self._on_change, self._up = on_change, up
        self._first_pause, self._longest_pause = first_pause, longest_pause
        self._open_until = 0.0
        self.failures = 0  # since the last reply

    @contextmanager
    def attempt(self, *, confirms: bool = True) -> Iterator[None]:
        """Use Redis in the body of a `with` statement; any exception there counts as a failure.

        `confirms` is whether a body that ends without an exception shows that Redis is responding.
        """
        if not self._allows():
            raise RedisUnavailable(tried=False)
        failures = self.failures
        try:
            yield
        except Exception as error:  # another server may send anything, and redis-py raise anything
            if failures == self.failures:  # otherwise another caller has already reported the failure
                self._fail(error)
            raise RedisUnavailable(tried=True) from error
        if confirms:
            self.failures, self._open_until = 0, 0.0
            if not self._up:
                self._up = True
                self._on_change(None)

    def _allows(self) -> bool:
        now = time.monotonic()
        if now < self._open_until:
            return False
        if self.failures:  # this caller tries on behalf of all; unless it succeeds, the next one is after another pause
            self._open_until = now + self._pause()
        return True

    def _fail(self, error: Exception) -> None:
        self.failures += 1
        self._open_until = time.monotonic() + self._pause()
        if self._up is not False:
            self._up = False
            self._on_change(error)

    def _pause(self) -> float:
        return min(self._longest_pause, self._first_pause * float(2 ** min(self.failures - 1, 10)))


def logging_breaker(
    purpose: str, deadline: Deadline, on_change: Callable[[bool], None] = lambda up: None
) -> CircuitBreaker:
    """Make a circuit breaker that logs each change, and calls `on_change` with whether Redis responds."""
    # The log names the purpose of Redis, and the deadline.

    def changed(error: Exception | None) -> None:
        on_change(error is None)
        if error is None:
            _log.info("Redis is responding", extra={"fields": {"for": purpose}})
        else:
            fields = {"for": purpose, "reason": str(error) or f"no reply within {deadline.seconds * 1000:.0f} ms"}
            _log.warning(f"Redis is not responding; retrying within {_MAX_PAUSE:g} s", extra={"fields": fields})

    return CircuitBreaker(changed)
