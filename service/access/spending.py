"""What a request takes of its key's rate: Redis counts for all replicas, this process where that does not say."""

from starlette.types import Scope

from taugate.service.access.keys import Key
from taugate.service.access.rate import OwnRates
from taugate.service.access.shared_rate import SharedRates
from taugate.service.errors import RateLimited
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings

_EVERYBODY = ""  # the name under which all share one rate where there are no keys


class Spending:
    """Of one process. Nothing is opened before there is a rate."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._default = settings.queries_per_second
        self._refused = metrics.refused.labels(RateLimited.code)
        self._url, self._timeout = settings.redis_url, settings.redis_timeout_ms / 1000
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
