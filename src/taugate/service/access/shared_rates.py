"""Rate limits that all replicas share in Redis; `rate_limit` explains the algorithm."""

from taugate.service.redis_client import MAX_CACHED_BYTES, Deadline, RedisUnavailable, connect_redis, logging_breaker
from taugate.service.settings import MAX_QUERIES

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


class SharedRates:
    """Rate limits over all replicas, in Redis; belongs to one event loop."""

    def __init__(self, url: str, timeout: float) -> None:
        """Make a client without connecting yet; `timeout` is the shortest wait for a reply, in seconds."""
        self._deadline = Deadline(timeout)
        self._redis = connect_redis(url, self._deadline.longest, MAX_CACHED_BYTES)
        self._spend = self._redis.register_script(_SPEND)
        self._breaker = logging_breaker("rate limits", self._deadline)

    async def spend(self, name: str, rate: float, queries: int, tolerance: float) -> float | None:
        """Do the same as `LocalRates.spend`, on the clock of Redis; return None if Redis does not reply.

        `tolerance` is how many seconds the key may be ahead of its rate.
        """
        furthest = tolerance + MAX_QUERIES / rate
        arguments = [repr(seconds) for seconds in (queries / rate, tolerance, furthest)]
        try:
            with self._breaker.attempt():
                async with self._deadline.limit():
                    reply = await self._spend(keys=[_PREFIX + name], args=arguments)
                wait = float(reply)
                if not (isinstance(reply, bytes) and 0 <= wait <= furthest):
                    raise ValueError("unexpected reply from Redis")
        except RedisUnavailable:
            return None
        return wait

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()
