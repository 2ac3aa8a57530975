"""Rate limits in queries per second and key, by GCRA; shared by all replicas if there is a Redis.

GCRA keeps one number per key: the time until which its queries are paid for. A query passes while that time is at most
`tolerance` ahead of now, and then moves it forward by 1/rate. So a key that has been quiet may send one second's worth
of queries at once, or one query if the rate is below 1. A batch passes if a single query would, and all its queries are
charged: no batch is too large to pass, later requests wait for it, and the long-run mean is the rate. Source: ATM
Forum, Traffic Management Specification 4.0, "Generic Cell Rate Algorithm", virtual scheduling.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from taugate.service.access.keys import ApiKey
from taugate.service.errors import RateLimited
from taugate.service.settings import Settings

if TYPE_CHECKING:  # loads redis-py, which a service without Redis does not need
    from taugate.service.access.shared_rates import SharedRates

_BURST_SECONDS = 1.0
_ROUNDING_SECONDS = 5e-6  # rounding error of sums of Unix times


def tolerance(rate: float) -> float:
    """Return how many seconds a key may be ahead of its rate, in queries per second."""
    return max(0.0, _BURST_SECONDS - 1 / rate) + _ROUNDING_SECONDS


class LocalRates:
    """Rate limits within one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with no query charged; `clock` is monotonic, in seconds."""
        self._clock = clock
        self._paid_until: dict[str, float] = {}  # by key name; bounded by the number of configured keys

    def spend(self, name: str, rate: float, queries: int) -> float:
        """Charge queries to a key with a rate in queries per second.

        Returns 0.0 if they may pass; else nothing is charged, and the seconds to wait are returned.
        """
        now = self._clock()
        paid_until = max(self._paid_until.get(name, now), now)
        wait = paid_until - now - tolerance(rate)
        if wait > 0:
            return wait
        self._paid_until[name] = paid_until + queries / rate
        return 0.0


_WITHOUT_KEY = ""  # stands for the name of the key if none are configured: all callers share one rate


class RateLimiter:
    """Charges requests to the rate of their key. Connects to Redis at the first request of a key with a rate."""

    def __init__(self, settings: Settings) -> None:
        """Read the default rate (`queries_per_second`, 0 for no limit) and where rates are shared (`redis_url`)."""
        self._default_rate = settings.access.queries_per_second
        self._redis_url, self._timeout = settings.cache.redis_url, settings.cache.redis_timeout_ms / 1000
        self._local = LocalRates()
        self._shared: SharedRates | None = None

    async def charge(self, key: ApiKey | None, queries: int = 1) -> None:
        """Charge a request with so many queries, 0 to see whether one would pass; `key` is None if it needed none.

        Raises:
            RateLimited: If the key is over its rate. Nothing is charged then.
        """
        wait = None
        if self._redis_url is not None and self.is_shared(key):
            if self._shared is None:
                from taugate.service.access.shared_rates import SharedRates

                self._shared = SharedRates(self._redis_url.get_secret_value(), self._timeout)
            rate = self._rate(key)
            wait = await self._shared.spend(_name(key), rate, queries, tolerance(rate))
        if wait is None:
            self.charge_here(key, queries)
        elif wait > 0:
            raise self._over(key, wait)

    def is_shared(self, key: ApiKey | None) -> bool:
        """Return whether charging a key asks Redis."""
        return self._redis_url is not None and self._rate(key) > 0

    def charge_here(self, key: ApiKey | None, queries: int = 1) -> None:
        """Do the same as `charge`, within this process."""
        rate = self._rate(key)
        if rate and (wait := self._local.spend(_name(key), rate, queries)) > 0:
            raise self._over(key, wait)

    def _rate(self, key: ApiKey | None) -> float:
        own = None if key is None else key.queries_per_second
        return self._default_rate if own is None else own

    def _over(self, key: ApiKey | None, wait: float) -> RateLimited:
        limited = "all clients together" if key is None else f"the key {key.name}"
        message = f"{limited} may send {self._rate(key):g} queries per second; Retry-After says when to try again"
        return RateLimited(message, wait)

    async def close(self) -> None:
        """Close the connections to Redis, if there are any."""
        if self._shared is not None:
            await self._shared.close()


def _name(key: ApiKey | None) -> str:
    return _WITHOUT_KEY if key is None else key.name
