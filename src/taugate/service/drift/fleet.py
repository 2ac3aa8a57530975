"""Shares replies and judgements with other replicas through Redis; no request waits for it."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from redis import RedisError, ResponseError, WatchError
from redis.asyncio.client import Pipeline

from taugate.service.redis_client import MAX_STATE_BYTES, CircuitBreaker, RedisUnavailable, connect_redis

_log = logging.getLogger(__name__)
_TIMEOUT_SECONDS = 1.0  # a round trip on a local network takes under a millisecond, and no request waits for it
_PAUSE_SECONDS = 5.0  # after a failure; without a pause every call would wait for the timeout
_ATTEMPTS = 8  # to change a value that others change too; each takes a few milliseconds, every five seconds
_BUCKET_SECONDS = 600  # of replies remembered under one key, which expires as a whole
# Without traffic: a night without queries, or a deployment that is down for hours, loses no evidence.
_STATE_SECONDS = 24 * 3600
Result = TypeVar("Result")


class Fleet:
    """The replicas that serve one release. While Redis is not responding, this replica works alone.

    Any thread but that of an event loop may call; the client has an event loop in a thread of its own.
    """

    def __init__(self, url: str, release: str, seconds: float) -> None:
        """Connect to Redis at the first call; replies of the release are remembered for `seconds`."""
        self._redis = connect_redis(url, _TIMEOUT_SECONDS, MAX_STATE_BYTES)
        self._timeout = _TIMEOUT_SECONDS
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="taugate-fleet", daemon=True)
        self._thread.start()
        self._prefix = f"taugate:drift:4:{release}"
        self._seconds = int(seconds)
        self._breaker = CircuitBreaker(_log_change, up=True, first_pause=_PAUSE_SECONDS, longest_pause=_PAUSE_SECONDS)

    def change(self, kind: str, work: Callable[[bytes | None], bytes | None]) -> bool:
        """Replace the value that replicas share under a kind; returns whether that succeeded.

        `work` makes the new value from the present one, None if there is none, and returns None to leave it unchanged.
        It is called again with the new value if another replica has changed it in the meantime.
        """
        key = f"{self._prefix}:{kind}"
        pipeline = self._redis.pipeline()
        with suppress(RedisUnavailable), self._breaker.attempt():
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
        with suppress(RedisUnavailable), self._breaker.attempt():
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
