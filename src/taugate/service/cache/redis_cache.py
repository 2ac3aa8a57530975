"""The cache that replicas share, in Redis: never waited for longer than it could save, and bypassed while it fails."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Literal, cast

from taugate.service.redis_client import MAX_CACHED_BYTES, CircuitBreaker, connect, log_changes

CacheOutcome = Literal["hit", "miss", "error", "bypass"]

_MAX_WRITES = 256  # in flight; what is worked out while Redis is that far behind is not written
_MAX_WRITE_BYTES = MAX_CACHED_BYTES // 2  # at a time: more could not be read again, as if Redis were ill


class RedisCache:
    """Values by key. A read that fails or times out finds nothing, and no failure reaches the caller."""

    def __init__(self, url: str, timeout: float, ttl: int, on_change: Callable[[bool], None]) -> None:
        """Make a client, which connects when it is first used.

        Args:
            timeout: Seconds that a read or a write may take.
            ttl: Seconds that a value is kept.
            on_change: Is called with whether Redis answers, whenever that changes.

        Raises:
            ValueError: For a malformed URL.
        """
        self._redis = connect(url, timeout)
        self._timeout, self._ttl = timeout, ttl
        self._breaker = CircuitBreaker(log_changes("cache", timeout, on_change))
        self._writes: set[asyncio.Task[None]] = set()

    async def get(self, keys: Sequence[str]) -> tuple[CacheOutcome, list[bytes | None]]:
        """Return the values of keys, None for each that is absent; the outcome is "hit" when one is there."""
        nothing: list[bytes | None] = [None] * len(keys)
        if not self._breaker.allows():
            return "bypass", nothing
        failures = self._breaker.failures
        try:
            async with asyncio.timeout(self._timeout):
                values = cast("list[bytes | None]", await self._redis.mget(keys))
                _check(values, len(keys))
        except Exception as error:  # noqa: BLE001 (what is no Redis may answer anything, and redis-py raise anything)
            self._breaker.failed(error, failures)
            return "error", nothing
        self._breaker.succeeded()
        return ("miss" if values == nothing else "hit"), values

    def put(self, values: Mapping[str, bytes]) -> None:
        """Write values in the background."""
        too_long = sum(map(len, values.values())) > _MAX_WRITE_BYTES
        if too_long or self._breaker.failures or len(self._writes) >= _MAX_WRITES:
            return
        task = asyncio.ensure_future(self._write(values))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def close(self) -> None:
        """Cancel the writes under way, and close the connections."""
        for task in self._writes:
            task.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)
        await self._redis.aclose()

    async def _write(self, values: Mapping[str, bytes]) -> None:
        failures = self._breaker.failures
        try:
            async with asyncio.timeout(self._timeout), self._redis.pipeline(transaction=False) as pipeline:
                for key, value in values.items():
                    pipeline.set(key, value, ex=self._ttl)
                await pipeline.execute()
        except Exception as error:  # noqa: BLE001 (as in `get`)
            self._breaker.failed(error, failures)


def _check(values: object, count: int) -> None:
    """Raises ValueError for an answer that no Redis gives to a request for so many values."""
    if not isinstance(values, list) or len(values) != count or not {type(each) for each in values} <= {bytes, NoneType}:
        raise ValueError("its answer does not fit the question")
