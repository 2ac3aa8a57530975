"""Shares replies and judgements with other replicas through Redis; no request waits for it."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from redis import ConnectionPool, Redis, ResponseError, WatchError
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.retry import Retry

from taugate.service.pipeline.record import Results, shown_bytes
from taugate.service.redis_client import CircuitBreaker, limit_replies

_log = logging.getLogger(__name__)
_TIMEOUT_SECONDS = 1.0  # a round trip on a local network takes under a millisecond, and no request waits for it
_PAUSE_SECONDS = 5.0  # after a failure; without a pause every call would wait for the timeout
_ATTEMPTS = 8  # to change a value that others change too; each takes a few milliseconds, every five seconds
_BUCKET_SECONDS = 600  # of replies remembered under one key, which expires as a whole
Result = TypeVar("Result")


class Fleet:
    """The replicas that serve one release. While Redis is not responding, this replica works alone."""

    def __init__(self, url: str, release: str, seconds: float) -> None:
        """Connect to Redis at the first call; replies of the release are remembered for `seconds`."""
        pool = ConnectionPool.from_url(
            url,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis = Redis.from_pool(limit_replies(pool))
        self._prefix = f"taugate:drift:3:{release}"
        self._seconds = int(seconds)
        self._breaker = CircuitBreaker(_log_change, up=True, first_pause=_PAUSE_SECONDS, longest_pause=_PAUSE_SECONDS)

    def change(self, kind: str, work: Callable[[bytes | None], bytes | None], seconds: float) -> bool:
        """Replace the value that replicas share under a kind; returns whether that succeeded.

        Args:
            kind: Name of the value.
            work: Makes the new value from the present one, None if there is none. Returns None to leave it unchanged.
                Called again with the new value if another replica has changed it in the meantime.
            seconds: Lifetime of the value after its last change.
        """
        key = f"{self._prefix}:{kind}"

        def attempt() -> bool:
            with self._redis.pipeline() as pipeline:
                for _ in range(_ATTEMPTS):
                    pipeline.watch(key)  # type: ignore[no-untyped-call]
                    value = work(_bytes_at(pipeline, key))
                    if value is None:
                        return True
                    pipeline.multi()
                    pipeline.set(key, value, ex=int(seconds))
                    with suppress(WatchError):
                        pipeline.execute()
                        return True
            return False

        return self._call(attempt, default=False)

    def drop(self, kind: str) -> None:
        """Delete the value that replicas share under a kind."""
        self._call(lambda: self._redis.delete(f"{self._prefix}:{kind}"), 0)

    def remember(self, at: float, replies: Mapping[str, Results]) -> None:
        """Keep what replies showed, (n,) RESULT, by their id; `at` is a Unix time in seconds."""
        key = self._bucket(at)

        def commands(pipeline: Pipeline) -> None:
            pipeline.hset(key, mapping={query_id: shown_bytes(results) for query_id, results in replies.items()})
            pipeline.expire(key, self._seconds + _BUCKET_SECONDS)

        self._call_pipelined(commands, [])

    def find(self, query_id: str, now: float) -> bytes | None:
        """Return what a reply showed, None if no replica remembers it; `now` is a Unix time in seconds."""

        def commands(pipeline: Pipeline) -> None:
            # From the next bucket on: the clock of the replica that remembered the reply may be ahead of this one.
            for age in range(-_BUCKET_SECONDS, self._seconds + _BUCKET_SECONDS, _BUCKET_SECONDS):
                pipeline.hget(self._bucket(now - age), query_id)

        shown = self._call_pipelined(commands, [])
        return next((reply for reply in shown if isinstance(reply, bytes)), None)

    def is_first(self, judgement: str) -> bool:
        """Return whether no replica has had this judgement before; True while Redis is not responding."""
        key = f"{self._prefix}:judged:{judgement}"
        return self._call(lambda: bool(self._redis.set(key, b"", nx=True, ex=self._seconds)), default=True)

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def _bucket(self, at: float) -> str:
        return f"{self._prefix}:shown:{int(at // _BUCKET_SECONDS)}"

    def _call_pipelined(self, commands: Callable[[Pipeline], None], default: list[Any]) -> list[Any]:
        """Return the results of commands sent in one round trip."""

        def work() -> list[Any]:
            with self._redis.pipeline(transaction=False) as pipeline:
                commands(pipeline)
                return list(pipeline.execute())

        return self._call(work, default)

    def _call(self, work: Callable[[], Result], default: Result) -> Result:
        """Return the result of `work`, or `default` while Redis is not responding, which is logged once."""
        if not self._breaker.allows():
            return default
        failures = self._breaker.failures
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 (another server may send anything, and redis-py raise anything)
            self._breaker.failed(error, failures)
            return default
        self._breaker.succeeded()
        return result


def _log_change(error: Exception | None) -> None:
    """Log that Redis is responding again, or why it is not."""
    if error is None:
        _log.info("Redis sync restored; replicas share feedback again")
    else:
        fields = {"reason": str(error)}
        _log.warning("Redis sync lost; replicas no longer share feedback", extra={"fields": fields})


def _bytes_at(pipeline: Pipeline, key: str) -> bytes | None:
    """Return the value of a key, None if there is none or if it is not bytes."""
    try:
        value = pipeline.get(key)
    except ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        return None
    return value if isinstance(value, bytes) else None
