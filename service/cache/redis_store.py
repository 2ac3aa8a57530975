"""The cache that replicas share: Redis, never waited for longer than it could save, and left alone while it is ill."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

_log = logging.getLogger("taugate.cache")
Outcome = Literal["hit", "miss", "error", "bypass"]

# Connections of one process. A round trip on the loopback takes .2 ms, so that 16 carry far more than an encoder needs.
_CONNECTIONS = 16
_MOST_WRITES = 256  # in flight; what is worked out while Redis is that far behind is not written
# After a failure: long enough that a Redis which is down costs one query in hundreds its timeout, short enough that
# one which came back is in use within seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0


class RedisStore:
    """Values by key. What fails, or takes longer than `timeout` seconds, is not there; it is never an error.

    After a failure Redis is left alone for a pause that doubles with each further one; then a single query asks again.
    ttl: seconds that a value is kept; on_change: is told whether Redis answers. Raises ValueError for what is no URL.
    """

    def __init__(self, url: str, timeout: float, ttl: int, on_change: Callable[[bool], None]) -> None:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=timeout,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis = Redis.from_pool(pool)
        self._timeout, self._ttl, self._on_change = timeout, ttl, on_change
        self._up: bool | None = None
        self._failures = 0  # since it answered last
        self._closed_until = 0.0
        self._writes: set[asyncio.Task[None]] = set()

    async def get(self, keys: Sequence[str]) -> tuple[Outcome, list[bytes | None]]:
        """Values, None for those that are not there; "hit" when one is."""
        nothing: list[bytes | None] = [None] * len(keys)
        if not self._may_ask():
            return "bypass", nothing
        failures = self._failures
        try:
            async with asyncio.timeout(self._timeout):
                values = cast("list[bytes | None]", await self._redis.mget(keys))
        except (RedisError, OSError, TimeoutError) as error:
            self._failed(error, failures)
            return "error", nothing
        self._answered()
        return ("miss" if values == nothing else "hit"), values

    def put(self, values: Mapping[str, bytes]) -> None:
        """Write values in the background."""
        if self._failures or len(self._writes) >= _MOST_WRITES:
            return
        task = asyncio.ensure_future(self._write(values))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def close(self) -> None:
        """Give up what is being written, and the connections."""
        for task in self._writes:
            task.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)
        await self._redis.aclose()

    async def _write(self, values: Mapping[str, bytes]) -> None:
        failures = self._failures
        try:
            async with asyncio.timeout(self._timeout), self._redis.pipeline(transaction=False) as pipeline:
                for key, value in values.items():
                    pipeline.set(key, value, ex=self._ttl)
                await pipeline.execute()
        except (RedisError, OSError, TimeoutError) as error:
            self._failed(error, failures)

    def _may_ask(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now < self._closed_until:
            return False
        if self._failures:  # this query asks for all: the next one only after another pause, unless it is answered
            self._closed_until = now + self._pause()
        return True

    def _pause(self) -> float:
        return min(_LONGEST_PAUSE, _FIRST_PAUSE * float(2 ** min(self._failures - 1, 10)))

    def _answered(self) -> None:
        self._failures, self._closed_until = 0, 0.0
        if not self._up:
            self._up = True
            self._on_change(True)
            _log.info("Redis answers")

    def _failed(self, error: Exception, failures: int) -> None:
        if failures != self._failures:  # another query has found out already
            return
        self._failures += 1
        self._closed_until = asyncio.get_running_loop().time() + self._pause()
        if self._up is not False:
            self._up = False
            self._on_change(False)
            reason = str(error) or f"no answer within {self._timeout * 1000:.0f} ms"
            _log.warning("Redis does not answer and is left alone for a while", extra={"fields": {"reason": reason}})
