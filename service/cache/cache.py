"""The two places where answers are kept: replies in this process, and in Redis what others can make theirs of."""

from collections.abc import Mapping, Sequence

from taugate.errors import InputError
from taugate.service.cache.memory import Memory
from taugate.service.cache.redis_store import Outcome, RedisStore
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings


class Cache:
    """memory: of this process; shared: of all replicas, None where there is no Redis."""

    def __init__(self, memory: Memory, shared: RedisStore | None) -> None:
        self.memory, self.shared = memory, shared

    async def fetch(self, keys: Sequence[str]) -> tuple[Outcome, list[bytes | None]]:
        """What others have written; nothing of it can be relied on before it has been looked at."""
        if self.shared is None:
            return "miss" if self.memory.most_bytes else "bypass", [None] * len(keys)
        return await self.shared.get(keys)

    def share(self, values: Mapping[str, bytes]) -> None:
        """Leave values for other replicas."""
        if self.shared is not None:
            self.shared.put(values)

    async def close(self) -> None:
        """Let go of the connections."""
        if self.shared is not None:
            await self.shared.close()


def open_cache(settings: Settings, metrics: Metrics) -> Cache:
    """The cache that the settings ask for; Redis is asked for nothing yet. Raises InputError."""
    memory = Memory(settings.cache_bytes)
    if settings.redis_url is None:
        return Cache(memory, None)
    url, timeout = settings.redis_url.get_secret_value(), settings.redis_timeout_ms / 1000
    try:
        shared = RedisStore(url, timeout, settings.redis_ttl_seconds, lambda up: metrics.redis_up.set(int(up)))
    except ValueError as error:
        raise InputError("TAUGATE_REDIS_URL: no such URL; redis://, rediss:// and unix:// are understood") from error
    return Cache(memory, shared)
