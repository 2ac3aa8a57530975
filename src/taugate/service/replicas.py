"""What replicas share through Redis: rate limits, cached replies, judgements and alarms; no request waits for it."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import NoneType
from typing import Any, Literal, TypeVar, cast

from redis import RedisError, ResponseError, WatchError
from redis.asyncio.client import Pipeline

from taugate.service import redis_client
from taugate.service.settings import MAX_QUERIES

_log = logging.getLogger(__name__)

_PREFIX = "taugate:rate:1:"
# A time further ahead than the largest batch can have paid for was written before the clock was set back.
_SPEND = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local cost, tolerance, furthest = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local paid = tonumber(redis.call('GET', KEYS[1])) or now
if not (paid >= now and paid <= now + furthest) then paid = now end
local wait = paid - now - tolerance
if wait > 0 then return tostring(wait) end
paid = paid + cost
redis.call('SET', KEYS[1], string.format('%.6f', paid), 'PX', math.ceil((paid - now) * 1000) + 1)
return '0'
"""

CacheOutcome = Literal["hit", "miss", "error", "bypass"]

_MAX_WRITES = 256  # in progress; while Redis is this far behind, further values are not written
_MAX_WRITE_BYTES = (
    redis_client.MAX_CACHED_BYTES // 2
)  # per write; a larger reply would exceed the read limit and count as a failure
_TIMEOUT_SECONDS = 1.0  # a round trip on a local network takes under a millisecond, and no request waits for it
_PAUSE_SECONDS = 5.0  # after a failure; without a pause every call would wait for the timeout
_ATTEMPTS = 8  # to change a value that others change too; each takes a few milliseconds, every five seconds
_BUCKET_SECONDS = 600  # of replies remembered under one key, which expires as a whole
# Without traffic: a night without queries, or a deployment that is down for hours, loses no evidence.
_STATE_SECONDS = 24 * 3600
Result = TypeVar("Result")


class SharedRates:
    """Rate limits over all replicas, in Redis; belongs to one event loop."""

    def __init__(self, url: str, timeout: float) -> None:
        """Make a client without connecting yet; `timeout` is the shortest wait for a reply, in seconds."""
        self._deadline = redis_client.Deadline(timeout)
        self._redis = redis_client.connect_redis(url, self._deadline.longest, redis_client.MAX_CACHED_BYTES)
        self._spend = self._redis.register_script(_SPEND)
        self._breaker = redis_client.logging_breaker("rate limits", self._deadline)

    async def spend(self, name: str, rate: float, queries: int, tolerance: float) -> float | None:
        """Do the same as `LocalRates.spend`, on the clock of Redis; return None if Redis does not reply."""
        # `tolerance` is how many seconds the key may be ahead of its rate.
        furthest = tolerance + MAX_QUERIES / rate
        arguments = [repr(seconds) for seconds in (queries / rate, tolerance, furthest)]
        try:
            with self._breaker.attempt():
                async with self._deadline.limit():
                    reply = await self._spend(keys=[_PREFIX + name], args=arguments)
                wait = float(reply)
                if not (isinstance(reply, bytes) and 0 <= wait <= furthest):
                    raise ValueError("unexpected reply from Redis")
        except redis_client.RedisUnavailable:
            return None
        return wait

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()


class RedisCache:
    """Values by key. If a read fails or times out, it returns no values; callers never see the failure."""

    def __init__(self, url: str, timeout: float, ttl: int, on_change: Callable[[bool], None]) -> None:
        """Make a client, which connects on first use; `on_change` is called when Redis stops or begins to respond."""
        # The shortest timeout of a read or a write and the lifetime `ttl` of a value are in seconds.
        self._deadline, self._ttl = redis_client.Deadline(timeout), ttl
        self._redis = redis_client.connect_redis(url, self._deadline.longest, redis_client.MAX_CACHED_BYTES)
        self._breaker = redis_client.logging_breaker("cache", self._deadline, on_change)
        self._writes: set[asyncio.Task[None]] = set()

    async def get(self, keys: Sequence[str]) -> tuple[CacheOutcome, list[bytes | None]]:
        """Return the values of keys, None for each absent one. The outcome is "hit" if at least one is present."""
        nothing: list[bytes | None] = [None] * len(keys)
        try:
            with self._breaker.attempt():
                async with self._deadline.limit():
                    values = cast("list[bytes | None]", await self._redis.mget(keys))
                    _check(values, len(keys))
        except redis_client.RedisUnavailable as error:
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
        with suppress(redis_client.RedisUnavailable), self._breaker.attempt(confirms=False):
            async with asyncio.timeout(self._deadline.seconds), self._redis.pipeline(transaction=False) as pipeline:
                for key, value in values.items():
                    pipeline.set(key, value, ex=self._ttl)
                await pipeline.execute()


def _check(values: object, count: int) -> None:
    """Raise ValueError if a reply cannot be that of Redis to a request for `count` values."""
    if not isinstance(values, list) or len(values) != count or not {*map(type, values)} <= {bytes, NoneType}:
        raise ValueError("unexpected reply from Redis")


class Fleet:
    """The replicas that serve one release. While Redis is not responding, this replica works alone.

    Any thread but that of an event loop may call; the client has an event loop in a thread of its own.
    """

    def __init__(self, url: str, release: str, seconds: float) -> None:
        """Connect to Redis at the first call; replies of the release are remembered for `seconds`."""
        self._redis = redis_client.connect_redis(url, _TIMEOUT_SECONDS, redis_client.MAX_STATE_BYTES)
        self._timeout = _TIMEOUT_SECONDS
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="taugate-fleet", daemon=True)
        self._thread.start()
        self._prefix = f"taugate:drift:4:{release}"
        self._seconds = int(seconds)
        self._breaker = redis_client.CircuitBreaker(
            _log_change, up=True, first_pause=_PAUSE_SECONDS, longest_pause=_PAUSE_SECONDS
        )

    def change(self, kind: str, work: Callable[[bytes | None], bytes | None]) -> bool:
        """Replace the value that replicas share under a kind; returns whether that succeeded."""
        # `work` makes the new value from the present one, None if there is none, and returns None to leave it
        # unchanged. It is called again with the new value if another replica has changed it in the meantime.
        key = f"{self._prefix}:{kind}"
        pipeline = self._redis.pipeline()
        with suppress(redis_client.RedisUnavailable), self._breaker.attempt():
            try:
                for _ in range(_ATTEMPTS):
                    value = work(self._wait(_watch(pipeline, key)))
                    if value is None or self._wait(_replace(pipeline, key, value)):
                        return True
            finally:
                self._wait(pipeline.aclose())
        return False

    def drop(self, kind: str) -> None:
        """Delete the value that replicas share under a kind; those that still serve the release write it again."""
        self._call(lambda: self._redis.delete(f"{self._prefix}:{kind}"), default=0)

    def remember(self, at: float, replies: Mapping[str, bytes]) -> None:
        """Keep what replies showed, by their id; `at` is a Unix time in seconds."""
        key = self._bucket(at)

        def add(pipeline: Pipeline) -> None:
            pipeline.hset(key, items=[part for reply in replies.items() for part in reply])
            pipeline.expire(key, self._seconds + _BUCKET_SECONDS)

        self._call(lambda: self._pipelined(add), default=[])

    def find(self, query_id: str, now: float) -> bytes | None:
        """Return what a reply showed, None if no replica remembers it; `now` is a Unix time in seconds."""

        def read(pipeline: Pipeline) -> None:
            # From the next bucket on: the clock of the replica that remembered the reply may be ahead of this one.
            for age in range(-_BUCKET_SECONDS, self._seconds + _BUCKET_SECONDS, _BUCKET_SECONDS):
                pipeline.hget(self._bucket(now - age), query_id)

        shown = self._call(lambda: self._pipelined(read), default=list[Any]())
        return next((reply for reply in shown if isinstance(reply, bytes)), None)

    def count(self, name: str) -> int:
        """Count an event, and return how often it was counted by any replica; 0 while Redis is not responding."""
        key = f"{self._prefix}:count:{name}"

        def add(pipeline: Pipeline) -> None:
            pipeline.set(key, 0, nx=True, ex=self._seconds)
            pipeline.incr(key)

        return int(self._call(lambda: self._pipelined(add), default=[0])[-1])

    def close(self) -> None:
        """Close the connections and end the thread."""
        with suppress(RedisError, OSError):
            self._wait(self._redis.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _bucket(self, at: float) -> str:
        return f"{self._prefix}:shown:{int(at // _BUCKET_SECONDS)}"

    async def _pipelined(self, add: Callable[[Pipeline], None]) -> list[Any]:
        """Return the results of the commands that `add` gives to a pipeline, sent in one round trip."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            add(pipeline)
            return await pipeline.execute()

    def _call(self, work: Callable[[], Awaitable[Result]], default: Result) -> Result:
        """Return the result of `work`, or `default` while Redis is not responding, which is logged once."""
        with suppress(redis_client.RedisUnavailable), self._breaker.attempt():
            return self._wait(work())
        return default

    def _wait(self, work: Awaitable[Result]) -> Result:
        """Return the result of `work`, which the event loop runs; raises TimeoutError if it takes too long in all."""
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, self._timeout), self._loop).result()


async def _watch(pipeline: Pipeline, key: str) -> bytes | None:
    """Return the value of a key, None if there is none or if it is not bytes, and notice changes from now on."""
    await pipeline.watch(key)
    try:
        value = await pipeline.get(key)
    except ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        return None
    return value if isinstance(value, bytes) else None


async def _replace(pipeline: Pipeline, key: str, value: bytes) -> bool:
    """Set a key unless it has changed since `_watch`; returns whether that succeeded."""
    pipeline.multi()  # type: ignore[no-untyped-call]
    pipeline.set(key, value, ex=_STATE_SECONDS)
    with suppress(WatchError):
        await pipeline.execute()
        return True
    return False


def _log_change(error: Exception | None) -> None:
    """Log that Redis is responding again, or why it is not."""
    if error is None:
        _log.info("Redis sync restored; replicas share feedback again")
    else:
        fields = {"reason": str(error) or f"no reply within {_TIMEOUT_SECONDS:g} s"}
        _log.warning("Redis sync lost; replicas no longer share feedback", extra={"fields": fields})
