"""A Redis that requests wait for: connections that never try for long, and when to leave it alone, as it is ill."""

import asyncio
import logging
from collections.abc import Callable

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from taugate.service.redis_limits import limited_async

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
