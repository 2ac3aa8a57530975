"""Clients that ask all the while, and look at what they are told."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from tests.service_process import ServiceProcess

QUERIES = [f"What does a permit for a {thing} cost?" for thing in ("roof", "wall", "window", "bridge", "garage")]
CLIENTS = 3
NOT_CACHED = {"TAUGATE_CACHE_BYTES": "0"}


@dataclass(frozen=True)
class Told:
    """What a client was told, and when.

    Attributes:
        status: None where the connection broke.
    """

    at: float
    seconds: float
    status: int | None
    right: bool
    said: str

    @property
    def unready(self) -> bool:
        return self.status == 503 and '"not_ready"' in self.said


def answers(service: ServiceProcess) -> dict[str, dict[str, Any]]:
    """Results of every query, by release: what each reply is compared with."""
    replies = [service.http.post("/search", json={"query": query}).json() for query in QUERIES]
    return {replies[0]["release"]: {query: each["results"] for query, each in zip(QUERIES, replies, strict=True)}}


class Load:
    """`with Load(port, expected) as load: …`; load.told afterwards, and while it goes on.

    Attributes:
        expected: See `answers`.
    """

    def __init__(
        self, port: int, expected: dict[str, dict[str, Any]], clients: int = CLIENTS, *, keep: bool = False
    ) -> None:
        self._url, self._expected, self._keep = f"http://127.0.0.1:{port}", expected, keep
        self.told: list[Told] = []
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(clients)]

    def _run(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=30) as kept:
            while not self._done.is_set():
                number += 1
                time.sleep(0.02)  # so that clients leave the service some of a small machine
                if self._keep:
                    self.told.append(self._ask(kept, QUERIES[number % len(QUERIES)]))
                    continue
                with httpx.Client(base_url=self._url, timeout=30) as http:
                    self.told.append(self._ask(http, QUERIES[number % len(QUERIES)]))

    def _ask(self, http: httpx.Client, query: str) -> Told:
        began = time.monotonic()
        try:
            reply = http.post("/search", json={"query": query})
        except httpx.TransportError as error:
            return Told(began, time.monotonic() - began, None, right=False, said=repr(error))
        said = reply.json()
        right = reply.status_code == 200 and said["results"] == self._expected[said["release"]][query]
        return Told(began, time.monotonic() - began, reply.status_code, right, reply.text)

    @property
    def wrong(self) -> Sequence[Told]:
        """Whatever was answered and is no right answer, nor that there is none yet."""
        return [each for each in self.told if each.status is not None and not (each.right or each.unready)]

    @property
    def broken(self) -> Sequence[Told]:
        """What was not answered, or before there was a release."""
        return [each for each in self.told if each.status is None or each.unready]

    def goes_on(self, answered: int = 20) -> None:
        """Wait until so many more were answered."""
        known = len(self.told)
        deadline = time.monotonic() + 30
        while sum(each.right for each in self.told[known:]) < answered:
            assert time.monotonic() < deadline, "nobody is answered any more"
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
    """What is done in the block takes no longer."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def ends(process_is_there: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until something is gone."""
    deadline = time.monotonic() + seconds
    while process_is_there():
        assert time.monotonic() < deadline, "it does not end"
        time.sleep(0.02)
