"""Closed loop: so many clients, each of which asks again as soon as it is answered."""

import asyncio
import time
from collections.abc import Iterator, Sequence

from benchmarks.serving.client import LOST, LoadConnection, connect

Row = tuple[float, float, float, int, int]  # due, sent, done, status, bytes
_DRAIN = 60.0  # seconds that the last replies may take


class _Clients:
    """The state that the callbacks of all connections share."""

    def __init__(self, requests: Sequence[bytes], order: Iterator[int], seconds: float) -> None:
        self.rows: list[Row] = []
        self.lost = 0
        self._requests, self._order = requests, order
        self._asked: dict[LoadConnection, float] = {}
        self._began = time.perf_counter()
        self._ends = self._began + seconds
        self.finished = asyncio.Event()

    def ask(self, connection: LoadConnection) -> None:
        """Send the next request, unless it is time to stop."""
        now = time.perf_counter()
        number = next(self._order, None) if now < self._ends else None
        if number is None:
            if not self._asked:
                self.finished.set()
            return
        self._asked[connection] = now
        connection.send(self._requests[number])

    def answered(self, connection: LoadConnection, status: int, body: bytes) -> None:
        """Note it and ask again."""
        asked, done = self._asked.pop(connection), time.perf_counter()
        began = self._began
        self.rows.append((asked - began, asked - began, done - began, status, len(body)))
        if status == LOST:
            self.lost += 1
            self.finished.set()
        else:
            self.ask(connection)


async def closed_loop(
    port: int, requests: Sequence[bytes], order: Iterator[int], clients: int, seconds: float
) -> list[Row]:
    """Rows of a sample; ends after `seconds`, or when `order` has no more requests.

    Raises:
        ConnectionError: When the server hangs up, TimeoutError when it does not answer the last requests.
    """
    shared: _Clients | None = None

    def answered(connection: LoadConnection, status: int, body: bytes) -> None:
        if shared is not None:  # what hangs up after the run is no loss
            shared.answered(connection, status, body)

    connections = [await connect(port, answered) for _ in range(clients)]
    run = shared = _Clients(requests, order, seconds)
    try:
        for connection in connections:
            shared.ask(connection)
        async with asyncio.timeout(seconds + _DRAIN):
            await run.finished.wait()
    finally:
        shared = None
        for connection in connections:
            connection.close()
    if run.lost:
        raise ConnectionError(f"the server closed a connection after {len(run.rows)} replies")
    return run.rows
