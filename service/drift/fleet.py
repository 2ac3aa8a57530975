"""What replicas leave for each other in Redis; off the way of any request."""

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from redis import ConnectionPool, Redis, ResponseError, WatchError
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.retry import Retry

from taugate.service.metrics import SHARED_FOLDER
from taugate.service.redis_client import limited
from taugate.storage.locks import EXCLUSIVE, acquire

_log = logging.getLogger("taugate.drift")
# A round trip on a local network takes under a millisecond; nobody waits for this one but the next look.
_TIMEOUT_SECONDS = 1.0
_PAUSE_SECONDS = 5.0  # in which a Redis that did not answer is left alone: looks would take a timeout each
_ATTEMPTS = 8  # to change something that others change; each takes a few milliseconds, every five seconds
_BUCKET_SECONDS = 600  # of replies remembered under one key, which expires as a whole
Result = TypeVar("Result")


class Fleet:
    """Of one release. seconds: how long a reply is remembered. While Redis does not answer there are no others."""

    def __init__(self, url: str, release: str, seconds: float) -> None:
        pool = ConnectionPool.from_url(
            url,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis = Redis.from_pool(limited(pool))
        self._prefix = f"taugate:drift:3:{release}"
        self._seconds = int(seconds)
        self._answers, self._paused_until = True, 0.0

    def change(self, kind: str, work: Callable[[bytes | None], bytes | None], seconds: float) -> bool:
        """Replace what all replicas share of a kind by what `work` makes of it, None to leave it.

        Whether that was done. Replicas that change it at the same time do so one after the other: `work` is called
        again with what another has made meanwhile. seconds: after which it goes, unless somebody changes it again.
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
        """Remove what all replicas share of a kind."""
        self._asked(lambda: self._redis.delete(f"{self._prefix}:{kind}"), 0)

    def remember(self, at: float, replies: Mapping[str, bytes]) -> None:
        """Keep what replies showed, by their id; at: Unix time."""
        key = self._bucket(at)

        def commands(pipeline: Pipeline) -> None:
            pipeline.hset(key, items=[part for item in replies.items() for part in item])
            pipeline.expire(key, self._seconds + _BUCKET_SECONDS)

        self._piped(commands, [])

    def find(self, query_id: str, now: float) -> bytes | None:
        """What a reply showed, None where it is not known (any more)."""

        def commands(pipeline: Pipeline) -> None:
            # From the bucket ahead on: the clock of whoever remembered it may be ahead of this one's.
            for age in range(-_BUCKET_SECONDS, self._seconds + _BUCKET_SECONDS, _BUCKET_SECONDS):
                pipeline.hget(self._bucket(now - age), query_id)

        return next((shown for shown in self._piped(commands, []) if isinstance(shown, bytes)), None)

    def is_first(self, judgement: str) -> bool:
        """Whether no replica was told this before, as far as can be known."""
        key = f"{self._prefix}:judged:{judgement}"
        return self._asked(lambda: bool(self._redis.set(key, b"", nx=True, ex=self._seconds)), otherwise=True)

    def close(self) -> None:
        """Let go of the connections."""
        self._redis.close()

    def _bucket(self, at: float) -> str:
        return f"{self._prefix}:shown:{int(at // _BUCKET_SECONDS)}"

    def _piped(self, commands: Callable[[Pipeline], None], otherwise: list[Any]) -> list[Any]:
        """Results of all commands in one round trip."""

        def work() -> list[Any]:
            with self._redis.pipeline(transaction=False) as pipeline:
                commands(pipeline)
                return list(pipeline.execute())

        return self._asked(work, otherwise)

    def _asked(self, work: Callable[[], Result], otherwise: Result) -> Result:
        """What Redis answers, `otherwise` where it does not, which is said once."""
        if time.monotonic() < self._paused_until:
            return otherwise
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 (what is no Redis may answer anything, and redis-py raise anything)
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
            if self._answers:
                _log.warning("nothing is shared with other replicas", extra={"fields": {"reason": str(error)}})
            self._answers = False
            return otherwise
        if not self._answers:
            _log.info("what is seen is shared with other replicas again")
        self._answers = True
        return result


def _bytes_at(pipeline: Pipeline, key: str) -> bytes | None:
    """What is there; None for nothing, and for what others have put there that is no string of bytes."""
    try:
        found = pipeline.get(key)
    except ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        return None
    return found if isinstance(found, bytes) else None


# Kept without traffic: a night without queries, or a deployment that is down for hours, loses no evidence.
_SECONDS = 24 * 3600
_LOCK_SECONDS = 1.0  # other workers keep it for some milliseconds

Work = Callable[[bytes | None], bytes | None]


class Shared(Protocol):
    """Where the state is."""

    def change(self, work: Work) -> bool:
        """Replace the state by what `work` makes of it, None to leave it; False where it is out of reach.

        `work` may be called more than once, each time with what the state then is.
        """

    def drop(self) -> None:
        """Forget the state: the release has left, and begins anew should it come back."""


class InRedis(Shared):
    """Of all replicas whose alarms have the same fingerprint."""

    def __init__(self, fleet: Fleet, fingerprint: str) -> None:
        self._fleet, self._kind = fleet, f"state:{fingerprint}"

    def change(self, work: Work) -> bool:
        """False where Redis does not answer, or too many others are at it."""
        return self._fleet.change(self._kind, work, _SECONDS)

    def drop(self) -> None:
        """The last of the replicas to leave has the last word."""
        self._fleet.drop(self._kind)


class InFile(Shared):
    """Of all workers of one service, in the folder that goes with it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def change(self, work: Work) -> bool:
        """False where the file cannot be locked or written."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        with os.fdopen(descriptor, "r+b") as file:
            try:
                if not acquire(file.fileno(), EXCLUSIVE, _LOCK_SECONDS):
                    return False
                made = work(file.read() or None)
                if made is not None:
                    file.seek(0)
                    file.truncate()
                    file.write(made)
            except OSError:  # no locks, or no room: half a state is none that is restored
                return False
            return True

    def drop(self) -> None:
        """The last of the workers to leave has the last word."""
        self._path.unlink(missing_ok=True)


def shared_state(fleet: Fleet | None, release: str, fingerprint: str) -> Shared | None:
    """None for a process that answers alone."""
    if fleet is not None:
        return InRedis(fleet, fingerprint)
    if folder := os.environ.get(SHARED_FOLDER):
        return InFile(Path(folder) / f"drift-{release}-{fingerprint}.state")
    return None
