"""The same rate over all replicas: GCRA in one command to Redis, by Redis's own clock."""

import asyncio

from taugate.service.access.rate import tolerance
from taugate.service.api.schemas import MOST_QUERIES
from taugate.service.shared_redis import Breaker, connect

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
