"""A client with a good key that must not notice an attack: it asks at a fixed rate, in an open loop."""

import http.client
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import orjson

from benchmarks.serving.client import HOST

LOST = 0  # the status of a request without a reply
_AT_ONCE = 64  # requests under way; those beyond wait, and their wait counts


@dataclass(frozen=True)
class TimedRequest:
    """One request: seconds from when it was due until its reply was there, its status, and when it was due."""

    seconds: float
    status: int
    due: float


class SteadyClient:
    """A client with a key that asks at a steady rate; no attack may slow it down.

    `with SteadyClient(port, key, rate) as client: …`, then `client.asked`. Each request has a connection of its own.

    Attributes:
        known: Asks the same query each time; otherwise each is new.
        patience: Seconds after which a request is lost.
    """

    def __init__(self, port: int, key: str | None, rate: float, *, known: bool = True, patience: float = 10.0) -> None:
        self.asked: list[TimedRequest] = []
        self._port, self._rate, self._known, self._patience = port, rate, known, patience
        self._headers = {"Content-Type": "application/json"} | ({"X-API-Key": key} if key else {})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def failed(self) -> int:
        """Count the requests with another status than 200, or without a reply."""
        return sum(each.status != 200 for each in self.asked)

    @property
    def statuses(self) -> str:
        """Format how many requests had which status."""
        seen = sorted({each.status for each in self.asked})
        return ", ".join(f"{status or 'lost'}: {sum(each.status == status for each in self.asked)}" for status in seen)

    def milliseconds(self, percentile: float, since: float = 0.0) -> float:
        """Compute a percentile over all requests due after a moment of time.monotonic, answered or lost."""
        seconds = [each.seconds for each in self.asked if each.due >= since]
        return 1000 * float(np.percentile(seconds, percentile)) if seconds else float("nan")

    def _run(self) -> None:
        began, number = time.monotonic(), 0
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while not self._ended.wait(max(0.0, began + number / self._rate - time.monotonic())):
                pool.submit(self._ask, number, began + number / self._rate)
                number += 1

    def _ask(self, number: int, due: float) -> None:
        query = "Who pays for the repair of a roof, the seller of a house with hidden defects or whoever bought it?"
        body = orjson.dumps({"query": query if self._known else f"{query} {number}"})
        connection = http.client.HTTPConnection(HOST, self._port, timeout=self._patience)
        try:
            connection.request("POST", "/search", body, self._headers)
            reply = connection.getresponse()
            reply.read()
            status = reply.status
        except (OSError, http.client.HTTPException):
            status = LOST
        finally:
            connection.close()
        self.asked.append(TimedRequest(time.monotonic() - due, status, due))
