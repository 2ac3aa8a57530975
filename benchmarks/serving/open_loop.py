"""Open loop: requests come at times of their own, whether or not those before them were answered.

A request is due at its time in a Poisson process. If every connection is busy it waits, and that wait is part of its
latency: otherwise a slow server would slow down the load that shows it (coordinated omission).
"""

import asyncio
import selectors
import time
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.serving.client import LoadConnection, connect
from benchmarks.serving.closed_loop import Row

_DRAIN = 60.0  # seconds that the last replies may take
_IDLE = 4.0  # seconds after which a free connection is used no more: uvicorn closes it after 5
# What select(2) takes with room to spare. It waits to the microsecond; epoll rounds up to the millisecond.
_FEW_CONNECTIONS = 512


def due_times(rate: float, seconds: float, seed: int) -> np.ndarray:
    """Times of a Poisson process of `rate` events a second, float64, below `seconds`."""
    rng = np.random.default_rng(seed)
    count = int(rate * seconds + 6 * (rate * seconds) ** 0.5 + 10)  # six standard deviations more than are expected
    times = np.cumsum(rng.exponential(1 / rate, size=count))
    return times[times < seconds]


def selector(connections: int) -> selectors.BaseSelector:
    """The one whose timer is the finest for so many connections."""
    return selectors.SelectSelector() if connections <= _FEW_CONNECTIONS else selectors.DefaultSelector()


class _Arrivals:
    """The requests that are due, the free connections, and the record of the requests sent.

    Connections are opened when they are needed, `most` of them together. What is on top of the free ones is used first,
    so that those below fall idle and are let go before the server does it.
    """

    def __init__(self, port: int, requests: Sequence[bytes], order: Iterator[int], most: int) -> None:
        self.rows: list[Row] = []
        self.finished = asyncio.Event()
        self.expected: int | None = None  # known once all have arrived
        self._port, self._requests, self._order, self._most = port, requests, order, most
        self._began = time.perf_counter()
        self._open: set[LoadConnection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._free: list[tuple[LoadConnection, float]] = []
        self._waiting: deque[float] = deque()
        self._asked: dict[LoadConnection, tuple[float, float]] = {}

    def now(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._began

    def arrive(self, due: float) -> None:
        """Send a request that is due now if a connection is free, else queue it."""
        while self._free:
            connection, since = self._free.pop()
            if self.now() - since < _IDLE and not connection.closed:
                self._send(connection, due)
                return
            self._open.discard(connection)
            connection.close()
        self._waiting.append(due)
        if len(self._open) + len(self._opening) < self._most:
            task = asyncio.get_running_loop().create_task(self._connect())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def close(self) -> None:
        """Hang up."""
        self.expected = None
        for task in self._opening:
            task.cancel()
        for connection in self._open:
            connection.close()
        await asyncio.sleep(0)

    async def _connect(self) -> None:
        connection = await connect(self._port, self._answered)
        self._open.add(connection)
        self._next(connection)

    def _next(self, connection: LoadConnection) -> None:
        """The connection takes the request that has waited longest."""
        if self._waiting:
            self._send(connection, self._waiting.popleft())
        else:
            self._free.append((connection, self.now()))

    def _send(self, connection: LoadConnection, due: float) -> None:
        self._asked[connection] = due, self.now()
        connection.send(self._requests[next(self._order)])

    def _answered(self, connection: LoadConnection, status: int, body: bytes) -> None:
        due, sent = self._asked.pop(connection)
        self.rows.append((due, sent, self.now(), status, len(body)))
        if len(self.rows) == self.expected:
            self.finished.set()
        if connection.closed:
            self._open.discard(connection)
        else:
            self._next(connection)


async def open_loop(
    port: int, requests: Sequence[bytes], order: Iterator[int], due: np.ndarray, connections: int
) -> list[Row]:
    """Rows of a sample.

    Raises:
        TimeoutError: When the last requests are not answered.
    """
    arrivals = _Arrivals(port, requests, order, connections)
    try:
        for at in due.tolist():
            await asyncio.sleep(max(at - arrivals.now(), 0))  # when late, replies must be read all the same
            arrivals.arrive(at)
        arrivals.expected = len(due)
        if len(arrivals.rows) < len(due):
            async with asyncio.timeout(_DRAIN):
                await arrivals.finished.wait()
        return arrivals.rows
    finally:
        await arrivals.close()
