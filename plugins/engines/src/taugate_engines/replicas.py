"""Several servers of one engine: a request runs on the one that replied last, then on the next, or on all of them."""

import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from taugate.errors import EngineUnavailable, InputError

Client = TypeVar("Client")
Result = TypeVar("Result")
_MAX_LAG = 10.0  # seconds that a server may take longer than the slowest server before it


class Replicas(Generic[Client]):
    """Servers with the same contents, connected when first used; safe to use from several threads.

    Args:
        connect: Returns the client of a URL within a deadline; two threads may each create one.
    """

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        connect: Callable[[str, float], Client],
        is_unavailable: Callable[[Exception], bool],
    ) -> None:
        if not urls:
            raise InputError(f"{name}: no URL; set TAUGATE_ENGINE_URL")
        self._name, self._urls, self._connect, self._is_unavailable = name, [*urls], connect, is_unavailable
        self._clients: dict[str, Client] = {}
        self._first = 0  # index of the URL that replied last

    def run(self, request: Callable[[Client, float], Result], deadline: float, *, retry: bool = True) -> Result:
        """Run a request and, if the server does not respond, once more on the next one if there is one.

        Args:
            request: Called with a client and a deadline: half of the remaining time, so that the other half is left for
                a second attempt.
            retry: False for a request that must not be sent twice, such as an upload; it gets all the time.
        """
        start, failure = self._first, Exception()
        for attempt in range(2 if retry else 1):
            place = (start + attempt) % len(self._urls)
            url, now = self._urls[place], time.monotonic()
            try:
                if now >= deadline:
                    raise TimeoutError("no time is left")
                limit = now + (deadline - now) / 2 if retry and attempt == 0 else deadline
                result = request(self._client(url, limit), limit)
            except Exception as error:
                if not isinstance(error, TimeoutError) and not self._is_unavailable(error):
                    raise
                failure = error
            else:
                self._first = place
                return result
        raise self._unavailable(failure) from failure

    def run_on_each(self, request: Callable[[Client, float], Result], deadline: float) -> list[Result]:
        """Run a request on every server and return the results of those that respond, in the order of the URLs.

        A server that takes ten seconds longer than those before it counts as not responding.

        Args:
            request: Called with a client and a deadline.
        """
        if len(self._urls) == 1:
            return [self.run(request, deadline)]
        results: list[Result] = []
        failure, slowest = Exception(), 0.0
        for number, url in enumerate(self._urls):
            now = time.monotonic()
            limit = now + (deadline - now) / (len(self._urls) - number)
            if results:
                limit = min(limit, now + slowest + _MAX_LAG)
            try:
                if now >= deadline:
                    raise TimeoutError("no time is left")
                results.append(request(self._client(url, limit), limit))
            except Exception as error:
                if not isinstance(error, TimeoutError) and not self._is_unavailable(error):
                    raise
                failure = error
            else:
                slowest = max(slowest, time.monotonic() - now)
        if not results:
            raise self._unavailable(failure) from failure
        return results

    def _unavailable(self, failure: Exception) -> EngineUnavailable:
        return EngineUnavailable(
            f"the engine {self._name} at {self._hosts()} does not respond in time ({_first_line(failure)}); "
            "check that it is running and reachable"
        )

    def _client(self, url: str, deadline: float) -> Client:
        client = self._clients.get(url)
        if client is None:
            client = self._clients[url] = self._connect(url, deadline)
        return client

    def _hosts(self) -> str:
        """Return hosts and ports, without the other parts of the URLs, such as a password."""
        return ", ".join(_host(url) for url in self._urls)


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "a local path"
    except ValueError:
        return "a URL that cannot be read"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
