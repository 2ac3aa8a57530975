"""Clients that search without pause, and check the replies."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from tests.pace import at_most
from tests.service_process import ServiceProcess

QUERIES = [f"What does a permit for a {thing} cost?" for thing in ("roof", "wall", "window", "bridge", "garage")]
CLIENTS = 3
NOT_CACHED = {"TAUGATE_CACHE_BYTES": "0"}


@dataclass(frozen=True)
class ObservedReply:
    """A reply to a client, with its time.

    Attributes:
        at: Time of the request, by time.monotonic().
        seconds: Seconds until the reply.
        status: HTTP status; None if the connection broke.
        correct: Whether the results are those of the release that the reply names.
        text: Body of the reply, or the error.
    """

    at: float
    seconds: float
    status: int | None
    correct: bool
    text: str

    @property
    def unready(self) -> bool:
        return self.status == 503 and '"not_ready"' in self.text


def answers(service: ServiceProcess) -> dict[str, dict[str, Any]]:
    """Return the results of every query by release, to compare later replies with."""
    replies = [service.http.post("/search", json={"query": query}).json() for query in QUERIES]
    return {replies[0]["release"]: {query: each["results"] for query, each in zip(QUERIES, replies, strict=True)}}


class Load:
    """Clients in threads that search inside the context, and collect their replies in `replies`."""

    def __init__(
        self, port: int, expected: dict[str, dict[str, Any]], clients: int = CLIENTS, *, keep: bool = False
    ) -> None:
        self._url, self._expected, self._keep = f"http://127.0.0.1:{port}", expected, keep
        self.replies: list[ObservedReply] = []
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(clients)]

    def _run(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=120) as kept:
            while not self._done.is_set():
                number += 1
                time.sleep(0.02)  # leaves the service its share of a small machine
                if self._keep:
                    self.replies.append(self._ask(kept, QUERIES[number % len(QUERIES)]))
                    continue
                with httpx.Client(base_url=self._url, timeout=120) as http:
                    self.replies.append(self._ask(http, QUERIES[number % len(QUERIES)]))

    def _ask(self, http: httpx.Client, query: str) -> ObservedReply:
        began = time.monotonic()
        try:
            reply = http.post("/search", json={"query": query})
        except httpx.TransportError as error:
            return ObservedReply(began, time.monotonic() - began, None, correct=False, text=repr(error))
        body = reply.json()
        correct = reply.status_code == 200 and body["results"] == self._expected[body["release"]][query]
        return ObservedReply(began, time.monotonic() - began, reply.status_code, correct, reply.text)

    @property
    def incorrect(self) -> Sequence[ObservedReply]:
        """Replies that are neither correct nor say that no release is loaded yet."""
        return [reply for reply in self.replies if reply.status is not None and not (reply.correct or reply.unready)]

    @property
    def broken(self) -> Sequence[ObservedReply]:
        """Requests without a reply, or before a release was loaded."""
        return [reply for reply in self.replies if reply.status is None or reply.unready]

    def wait_for_answers(self, answered: int = 20) -> None:
        """Wait until so many more replies are correct."""
        before = len(self.replies)
        deadline = time.monotonic() + 120
        while sum(reply.correct for reply in self.replies[before:]) < answered:
            assert time.monotonic() < deadline, "no client is answered any more"
            time.sleep(0.01)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail if the block takes longer, on a fast machine without other work."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < at_most(seconds)


def wait_until_gone(is_running: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until processes have ended."""
    deadline = time.monotonic() + seconds
    while is_running():
        assert time.monotonic() < deadline, "the processes do not end"
        time.sleep(0.02)
