"""Users who ask questions at a steady rate of several services, whatever happens to these meanwhile."""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx
import numpy as np


@dataclass
class Asked:
    """Questions that were answered, and those that failed.

    Attributes:
        at: When each that was answered was due, seconds of time.monotonic().
        seconds: That each took.
        failed: What was wrong with each that failed.
        failed_at: When those were due.
    """

    at: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    failed_at: list[float] = field(default_factory=list)

    def milliseconds(self, percentile: float, since: float, until: float) -> float:
        """Return a percentile of the latencies of questions that were due between two times."""
        chosen = [took for at, took in zip(self.at, self.seconds, strict=True) if since <= at < until]
        return 1000 * float(np.percentile(chosen, percentile))


class Users:
    """An open loop in a thread of its own: a question is due at its time, whether or not those before were answered."""

    def __init__(self, urls: Sequence[str], rate: float) -> None:
        """urls: of the services, which take turns; rate: questions a second, of all together."""
        self.asked = Asked()
        self._urls, self._rate = urls, rate
        self._texts: Sequence[str] = ()
        self._next = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="users")

    def ask(self, texts: Sequence[str]) -> None:
        """Have the users ask these questions from now on, one after the other, and then again."""
        self._texts, self._next = texts, 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    async def _run(self) -> None:
        rng = np.random.default_rng(0)
        async with httpx.AsyncClient(timeout=30) as http, asyncio.TaskGroup() as group:
            due, turn = time.monotonic(), 0
            while not self._ended.is_set():
                due += float(rng.exponential(1 / self._rate))
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if self._texts:
                    text = self._texts[self._next % len(self._texts)]
                    self._next, turn = self._next + 1, turn + 1
                    group.create_task(self._one(http, self._urls[turn % len(self._urls)], text, due))

    async def _one(self, http: httpx.AsyncClient, url: str, text: str, due: float) -> None:
        try:
            reply = await http.post(f"{url}/search", json={"query": text})
            wrong = None if reply.status_code == httpx.codes.OK else f"{reply.status_code} {reply.text[:200]}"
        except httpx.HTTPError as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong is not None:
            self.asked.failed.append(wrong)
            self.asked.failed_at.append(due)
            return
        self.asked.at.append(due)
        self.asked.seconds.append(time.monotonic() - due)
