"""Shared Redis cache with a short timeout and a circuit breaker."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import NoneType
from typing import Literal, cast

from taugate.service.redis_client import MAX_CACHED_BYTES, Deadline, RedisUnavailable, connect_redis, logging_breaker

CacheOutcome = Literal["hit", "miss", "error", "bypass"]

_MAX_WRITES = 256  # in progress; while Redis is this far behind, further values are not written
_MAX_WRITE_BYTES = MAX_CACHED_BYTES // 2  # per write; a larger reply would exceed the read limit and count as a failure


class RedisCache:
    """Values by key. If a read fails or times out, it returns no values; callers never see the failure."""

    def __init__(self, url: str, timeout: float, ttl: int, on_change: Callable[[bool], None]) -> None:
        """Make a client, which connects on first use; `on_change` is called when Redis stops or begins to respond.

        The shortest timeout of a read or a write and the lifetime `ttl` of a value are in seconds.
        """
        self._deadline, self._ttl = Deadline(timeout), ttl
        self._redis = connect_redis(url, self._deadline.longest, MAX_CACHED_BYTES)
        self._breaker = logging_breaker("cache", self._deadline, on_change)
        self._writes: set[asyncio.Task[None]] = set()

    async def get(self, keys: Sequence[str]) -> tuple[CacheOutcome, list[bytes | None]]:
        """Return the values of keys, None for each absent one. The outcome is "hit" if at least one is present."""
        nothing: list[bytes | None] = [None] * len(keys)
        try:
            with self._breaker.attempt():
                async with self._deadline.limit():
                    values = cast("list[bytes | None]", await self._redis.mget(keys))
                    _check(values, len(keys))
        except RedisUnavailable as error:
            return ("error" if error.tried else "bypass"), nothing
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
        """Cancel the writes in progress, and close the connections."""
        for task in self._writes:
            task.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)
        await self._redis.aclose()

    async def _write(self, values: Mapping[str, bytes]) -> None:
        with suppress(RedisUnavailable), self._breaker.attempt(confirms=False):
            async with asyncio.timeout(self._deadline.seconds), self._redis.pipeline(transaction=False) as pipeline:
                for key, value in values.items():
                    pipeline.set(key, value, ex=self._ttl)
                await pipeline.execute()


def _check(values: object, count: int) -> None:
    """Raise ValueError if a reply cannot be that of Redis to a request for `count` values."""
    if not isinstance(values, list) or len(values) != count or not {*map(type, values)} <= {bytes, NoneType}:
        raise ValueError("unexpected reply from Redis")
