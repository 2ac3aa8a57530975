"""Several servers of one engine: a question goes to the one that answered last, then to the next; or to all of them."""

import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from taugate.errors import EngineUnavailable, InputError

Client = TypeVar("Client")
Answer = TypeVar("Answer")
_SLOWER = 10.0  # seconds that a server may take longer than the slowest of those that were asked before


class Replicas(Generic[Client]):
    """The servers at some URLs, connected to when they are first asked; safe to use from several threads.

    Attributes:
        name: Of the engine, for messages.
        urls: One or more, of servers that hold the same.
        connect: Makes the client of a URL within a deadline; two threads may make one each.
        failures: Exceptions that say that a server does not answer.
    """

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        connect: Callable[[str, float], Client],
        failures: Callable[[Exception], bool],
    ) -> None:
        if not urls:
            raise InputError(f"{name}: no URL; set TAUGATE_ENGINE_URL")
        self._name, self._urls, self._connect, self._failures = name, [*urls], connect, failures
        self._clients: dict[str, Client] = {}
        self._first = 0  # the place of the URL that answered last

    def ask(self, question: Callable[[Client, float], Answer], deadline: float, *, again: bool = True) -> Answer:
        """Ask, and where that fails, ask once more, of the next server if there is one.

        Args:
            question: Of a client, with a deadline of its own: half of the time that is left, so that the other half is
                left for the second one.
            deadline: Of `time.monotonic()`.
            again: False for a question that must not be asked twice, such as an upload; it has all the time.

        Raises:
            EngineUnavailable: .
        """
        start, failure = self._first, Exception()
        for attempt in range(2 if again else 1):
            place = (start + attempt) % len(self._urls)
            url, now = self._urls[place], time.monotonic()
            try:
                if now >= deadline:
                    raise TimeoutError("no time is left")
                limit = now + (deadline - now) / 2 if again and attempt == 0 else deadline
                answer = question(self._client(url, limit), limit)
            except Exception as error:
                if not isinstance(error, TimeoutError) and not self._failures(error):
                    raise
                failure = error
            else:
                self._first = place
                return answer
        raise self._unavailable(failure) from failure

    def ask_each(self, question: Callable[[Client, float], Answer], deadline: float) -> list[Answer]:
        """Ask every server, and return the answers of those that give one, in the order of the URLs.

        A server that takes ten seconds longer than those before it is left out, as one that is away is.

        Args:
            question: Of a client, with a deadline of its own.
            deadline: Of `time.monotonic()`.

        Raises:
            EngineUnavailable: Where no server answers.
        """
        if len(self._urls) == 1:
            return [self.ask(question, deadline)]
        answers: list[Answer] = []
        failure, slowest = Exception(), 0.0
        for number, url in enumerate(self._urls):
            now = time.monotonic()
            limit = now + (deadline - now) / (len(self._urls) - number)
            if answers:
                limit = min(limit, now + slowest + _SLOWER)
            try:
                if now >= deadline:
                    raise TimeoutError("no time is left")
                answers.append(question(self._client(url, limit), limit))
            except Exception as error:
                if not isinstance(error, TimeoutError) and not self._failures(error):
                    raise
                failure = error
            else:
                slowest = max(slowest, time.monotonic() - now)
        if not answers:
            raise self._unavailable(failure) from failure
        return answers

    def _unavailable(self, failure: Exception) -> EngineUnavailable:
        return EngineUnavailable(
            f"the engine {self._name} at {self._places()} does not answer in time ({_first_line(failure)}); "
            "check that it is up and reachable"
        )

    def _client(self, url: str, deadline: float) -> Client:
        client = self._clients.get(url)
        if client is None:
            client = self._clients[url] = self._connect(url, deadline)
        return client

    def _places(self) -> str:
        """Hosts and ports, without what else a URL may hold, such as a password."""
        return ", ".join(_place(url) for url in self._urls)


def _place(url: str) -> str:
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "a local path"
    except ValueError:
        return "a URL that cannot be read"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
