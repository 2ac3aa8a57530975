"""The replies and judgements that replicas share through Redis; no request waits for them."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from redis import ConnectionPool, Redis, ResponseError, WatchError
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.retry import Retry

from taugate.service.redis_client import CircuitBreaker, limit_answers

_log = logging.getLogger("taugate.drift")
# A round trip on a local network takes under a millisecond; nobody waits for this one but the next look.
_TIMEOUT_SECONDS = 1.0
_PAUSE_SECONDS = 5.0  # in which a Redis that did not answer is left alone: looks would take a timeout each
_ATTEMPTS = 8  # to change something that others change; each takes a few milliseconds, every five seconds
_BUCKET_SECONDS = 600  # of replies remembered under one key, which expires as a whole
Result = TypeVar("Result")


class Fleet:
    """The replicas that serve one release. While Redis does not answer, there are no others."""

    def __init__(self, url: str, release: str, seconds: float) -> None:
        """url: of Redis; release: id of the release; seconds: how long a reply is remembered."""
        pool = ConnectionPool.from_url(
            url,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis = Redis.from_pool(limit_answers(pool))
        self._prefix = f"taugate:drift:3:{release}"
        self._seconds = int(seconds)
        self._breaker = CircuitBreaker(_log_change, up=True, first_pause=_PAUSE_SECONDS, longest_pause=_PAUSE_SECONDS)

    def change(self, kind: str, work: Callable[[bytes | None], bytes | None], seconds: float) -> bool:
        """Replace the value that replicas share under a kind; returns whether that was done.

        Args:
            work: Makes the new value from the present one, None where there is none, or returns None to leave it; where
                replicas change it at the same time, it is called again with what another has made meanwhile.
            seconds: After which the value expires, unless somebody changes it again.
        """
        key = f"{self._prefix}:{kind}"

        def attempt() -> bool:
            with self._redis.pipeline() as pipeline:
                for _ in range(_ATTEMPTS):
                    pipeline.watch(key)  # type: ignore[no-untyped-call]
                    made = work(_bytes_at(pipeline, key))
                    if made is None:
                        return True
                    pipeline.multi()
                    pipeline.set(key, made, ex=int(seconds))
                    with suppress(WatchError):
                        pipeline.execute()
                        return True
            return False

        return self._asked(attempt, otherwise=False)

    def drop(self, kind: str) -> None:
        """Remove the value that replicas share under a kind."""
        self._asked(lambda: self._redis.delete(f"{self._prefix}:{kind}"), 0)

    def remember(self, at: float, replies: Mapping[str, bytes]) -> None:
        """Keep what replies showed, by their id.

        Args:
            at: Unix time in seconds.
        """
        key = self._bucket(at)

        def commands(pipeline: Pipeline) -> None:
            pipeline.hset(key, items=[part for item in replies.items() for part in item])
            pipeline.expire(key, self._seconds + _BUCKET_SECONDS)

        self._piped(commands, [])

    def find(self, query_id: str, now: float) -> bytes | None:
        """Return what a reply showed, None where no replica remembers it.

        Args:
            now: Unix time in seconds.
        """

        def commands(pipeline: Pipeline) -> None:
            # From the bucket ahead on: the clock of whoever remembered it may be ahead of this one's.
            for age in range(-_BUCKET_SECONDS, self._seconds + _BUCKET_SECONDS, _BUCKET_SECONDS):
                pipeline.hget(self._bucket(now - age), query_id)

        return next((shown for shown in self._piped(commands, []) if isinstance(shown, bytes)), None)

    def is_first(self, judgement: str) -> bool:
        """Tell whether no replica has had this judgement before; True where Redis does not answer."""
        key = f"{self._prefix}:judged:{judgement}"
        return self._asked(lambda: bool(self._redis.set(key, b"", nx=True, ex=self._seconds)), otherwise=True)

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def _bucket(self, at: float) -> str:
        return f"{self._prefix}:shown:{int(at // _BUCKET_SECONDS)}"

    def _piped(self, commands: Callable[[Pipeline], None], otherwise: list[Any]) -> list[Any]:
        """Return the results of commands that go in one round trip."""

        def work() -> list[Any]:
            with self._redis.pipeline(transaction=False) as pipeline:
                commands(pipeline)
                return list(pipeline.execute())

        return self._asked(work, otherwise)

    def _asked(self, work: Callable[[], Result], otherwise: Result) -> Result:
        """Return what `work` returns, or `otherwise` where Redis does not answer, which is logged once."""
        if not self._breaker.allows():
            return otherwise
        failures = self._breaker.failures
        failures = self._breaker.failures
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 (what is no Redis may answer anything, and redis-py raise anything)
            self._breaker.failed(error, failures)
            return otherwise
        self._breaker.succeeded()
        return result


def _log_change(error: Exception | None) -> None:
    """Log that Redis answers again, or why it does not."""
    if error is None:
        _log.info("what is seen is shared with other replicas again")
    else:
        _log.warning("nothing is shared with other replicas", extra={"fields": {"reason": str(error)}})


def _bytes_at(pipeline: Pipeline, key: str) -> bytes | None:
    """Return the value of a key, None where there is none, or where others have put something else than bytes."""
    try:
        found = pipeline.get(key)
    except ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        return None
    return found if isinstance(found, bytes) else None
