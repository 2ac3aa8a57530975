"""Rate limits: how many queries a second each key may ask, by GCRA, over all replicas where there is Redis.

GCRA keeps one number a key, the time until which its queries are paid for. A query passes while that time is at most
`tolerance` ahead of now, and moves it on by 1/rate. So of a key that was quiet, one second's worth of queries passes at
once, and one query where the rate is below 1. Several queries together pass when a single one would and are all paid
for: no batch is too large ever to pass, what follows it waits, and the mean over any time is the rate. Source: ATM
Forum, Traffic Management Specification 4.0, "Generic Cell Rate Algorithm", virtual scheduling.
"""

import asyncio
import time
from collections.abc import Callable

from taugate.service.access.keys import ApiKey
from taugate.service.errors import RateLimited
from taugate.service.metrics import Metrics
from taugate.service.redis_client import CircuitBreaker, connect, log_changes
from taugate.service.settings import MAX_QUERIES, Settings

_BURST_SECONDS = 1.0
_ROUNDING_SECONDS = 5e-6  # what sums of Unix times are off by


def tolerance(rate: float) -> float:
    """Return how many seconds queries may be ahead of their rate.

    Args:
        rate: Queries a second.
    """
    return max(0.0, _BURST_SECONDS - 1 / rate) + _ROUNDING_SECONDS


class LocalRates:
    """The rates of keys within one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing paid for.

        Args:
            clock: Seconds that never go back.
        """
        self._clock = clock
        self._paid_until: dict[str, float] = {}  # by names from the list of keys: there are few

    def spend(self, name: str, rate: float, queries: int, prepaid: int = 0) -> float:
        """Pay for queries where they may pass, and return 0.0; else return the seconds to wait, with nothing paid.

        Args:
            name: Of the key.
            rate: Queries a second.
            queries: How many to pay for.
            prepaid: How many queries of the same request are paid for already, which do not keep these out.
        """
        now = self._clock()
        paid_until = max(self._paid_until.get(name, now), now)
        wait = paid_until - now - tolerance(rate) - prepaid / rate
        if wait > 0:
            return wait
        self._paid_until[name] = paid_until + queries / rate
        return 0.0


_PREFIX = "taugate:rate:1:"
# What is further ahead than the largest batch can have paid for was written by a clock that has been set back since.
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


class SharedRates:
    """The rates of keys over all replicas, in Redis; belongs to one event loop."""

    def __init__(self, url: str, timeout: float) -> None:
        """Prepare a client; nothing is asked yet.

        Args:
            url: Of Redis.
            timeout: Seconds after which an answer is given up.

        Raises:
            ValueError: For what is no URL.
        """
        self._redis = connect(url, timeout)
        self._spend = self._redis.register_script(_SPEND)
        self._timeout = timeout
        self._breaker = CircuitBreaker(log_changes("rates of keys", timeout))

    async def spend(self, name: str, rate: float, queries: int, prepaid: int = 0) -> float | None:
        """Do as LocalRates.spend, with the clock of Redis; None where Redis does not answer.

        Args:
            name: As LocalRates.spend has them.
            rate: As LocalRates.spend has them.
            queries: As LocalRates.spend has them.
            prepaid: As LocalRates.spend has them.
        """
        if not self._breaker.allows():
            return None
        failures = self._breaker.failures
        ahead = tolerance(rate) + prepaid / rate
        furthest = ahead + MAX_QUERIES / rate
        numbers = [repr(each) for each in (queries / rate, ahead, furthest)]
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._spend(keys=[_PREFIX + name], args=numbers)
            wait = float(answer)
            if not (isinstance(answer, bytes) and 0 <= wait <= furthest):
                raise ValueError("its answer does not fit the question")
        except Exception as error:  # noqa: BLE001 (what is no Redis may answer anything, and redis-py raise anything)
            self._breaker.failed(error, failures)
            return None
        self._breaker.succeeded()
        return wait

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()


_WITHOUT_KEY = ""  # the name under which all callers share one rate where there are no keys


class RateLimiter:
    """Charges requests to the rate of their key. Redis is connected to when a key with a rate first asks."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Take limits from the settings.

        Args:
            settings: `queries_per_second` is the rate of keys that name none, 0 for no limit, and `redis_url` where
                rates are shared.
            metrics: Count what is refused.
        """
        self._default_rate = settings.access.queries_per_second
        self._refused = metrics.refused.labels(RateLimited.code)
        self._redis_url, self._timeout = settings.cache.redis_url, settings.cache.redis_timeout_ms / 1000
        self._local = LocalRates()
        self._shared: SharedRates | None = None

    async def charge(self, key: ApiKey | None) -> None:
        """Charge a request with one query.

        Args:
            key: That the request was admitted with, None where it needed none.

        Raises:
            RateLimited: , with nothing charged.
        """
        await self._charge(key, 1)

    async def charge_more(self, key: ApiKey | None, queries: int) -> None:
        """Charge further queries of a request that was charged with one, now that its body says how many it has.

        Args:
            key: As for `charge`.
            queries: How many more, 0 for none.

        Raises:
            RateLimited: Where other requests of the key have been charged with many meanwhile.
        """
        if queries:
            await self._charge(key, queries, prepaid=1)

    async def _charge(self, key: ApiKey | None, queries: int, prepaid: int = 0) -> None:
        name, rate = (_WITHOUT_KEY, None) if key is None else (key.name, key.rate)
        rate = self._default_rate if rate is None else rate
        if not rate:
            return
        if self._shared is None and self._redis_url is not None:
            self._shared = SharedRates(self._redis_url.get_secret_value(), self._timeout)
        wait = None if self._shared is None else await self._shared.spend(name, rate, queries, prepaid)
        if wait is None:
            wait = self._local.spend(name, rate, queries, prepaid)
        if wait > 0:
            self._refused.inc()
            who = "all callers" if key is None else f"the key {key.name}"
            raise RateLimited(f"{who} may ask {rate:g} queries per second; Retry-After says when to try again", wait)

    async def close(self) -> None:
        """Close the connections to Redis, if there are any."""
        if self._shared is not None:
            await self._shared.close()
