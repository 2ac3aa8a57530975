"""A rate of queries, by GCRA: one number a key, the time until which its queries are paid for.

A query is admitted while that time is at most `tolerance` ahead of now, and moves it by 1/rate: of a key that was
quiet, one second's worth passes at once, and one query where the rate is below 1. Several queries at once pass when a
single one would and are all paid for, so that what follows waits: no batch is too large ever to pass, and over any time
the mean is the rate (ATM Forum, Traffic Management 4.0, "Generic Cell Rate Algorithm", virtual scheduling).
"""

import asyncio
import time
from collections.abc import Callable

from starlette.types import Scope

from taugate.service.access.keys import Key
from taugate.service.errors import RateLimited
from taugate.service.metrics import Metrics
from taugate.service.redis_client import Breaker, connect
from taugate.service.settings import MOST_QUERIES, Settings

_BURST = 1.0  # seconds
_ROUNDING = 5e-6  # seconds: what sums of Unix times are off by


def tolerance(rate: float) -> float:
    """Seconds that queries may be ahead of their rate."""
    return max(0.0, _BURST - 1 / rate) + _ROUNDING


class OwnRates:
    """Of one process. clock: seconds that never go back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paid_until: dict[str, float] = {}  # of names from the file of keys: there are few

    def spend(self, name: str, rate: float, queries: int, already: int = 0) -> float:
        """Seconds to wait before the next query may pass; 0.0 where these may now, which are paid for then.

        already: queries of the same request that are paid for.
        """
        now = self._clock()
        paid_until = max(self._paid_until.get(name, now), now)
        wait = paid_until - now - tolerance(rate) - already / rate
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
    """What fails, or takes longer than `timeout` seconds, is not known. Raises ValueError for what is no URL."""

    def __init__(self, url: str, timeout: float) -> None:
        self._redis = connect(url, timeout)
        self._spend = self._redis.register_script(_SPEND)
        self._timeout = timeout
        self._breaker = Breaker("rates of keys", timeout)

    async def spend(self, name: str, rate: float, queries: int, already: int = 0) -> float | None:
        """Seconds to wait, 0.0 where the queries may pass, None where Redis does not say. See OwnRates."""
        if not self._breaker.may_ask():
            return None
        failures = self._breaker.failures
        ahead = tolerance(rate) + already / rate
        furthest = ahead + MOST_QUERIES / rate
        numbers = [repr(each) for each in (queries / rate, ahead, furthest)]
        try:
            async with asyncio.timeout(self._timeout):
                said = await self._spend(keys=[_PREFIX + name], args=numbers)
            wait = float(said)
            if not (isinstance(said, bytes) and 0 <= wait <= furthest):
                raise ValueError("it answers something else than was asked")
        except Exception as error:  # noqa: BLE001 (what is no Redis may answer anything, and redis-py raise anything)
            self._breaker.failed(error, failures)
            return None
        self._breaker.answered()
        return wait

    async def close(self) -> None:
        """Let go of the connections."""
        await self._redis.aclose()


_EVERYBODY = ""  # the name under which all share one rate where there are no keys


class Spending:
    """Of one process. Nothing is opened before there is a rate."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._default = settings.access.queries_per_second
        self._refused = metrics.refused.labels(RateLimited.code)
        self._url, self._timeout = settings.cache.redis_url, settings.cache.redis_timeout_ms / 1000
        self._own = OwnRates()
        self._shared: SharedRates | None = None

    async def charge(self, scope: Scope) -> None:
        """Pay for a request. Raises RateLimited, with nothing paid."""
        await self._pay(scope, 1)

    async def charge_more(self, scope: Scope, queries: int) -> None:
        """Pay for further queries of a request that was charged.

        Raises RateLimited where another request has paid for many meanwhile.
        """
        if queries:
            await self._pay(scope, queries, already=1)

    async def _pay(self, scope: Scope, queries: int, already: int = 0) -> None:
        key: Key | None = scope["state"].get("key")
        name, rate = (_EVERYBODY, None) if key is None else (key.name, key.rate)
        rate = self._default if rate is None else rate
        if not rate:
            return
        if self._shared is None and self._url is not None:
            self._shared = SharedRates(self._url.get_secret_value(), self._timeout)
        wait = None if self._shared is None else await self._shared.spend(name, rate, queries, already)
        if wait is None:
            wait = self._own.spend(name, rate, queries, already)
        if wait > 0:
            self._refused.inc()
            of = "all callers" if key is None else f"the key {key.name}"
            raise RateLimited(f"{of} may ask {rate:g} queries a second; Retry-After says when to try again", wait)

    async def close(self) -> None:
        """Let go of the connections."""
        if self._shared is not None:
            await self._shared.close()
