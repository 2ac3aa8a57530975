"""Clients that look at every reply: a process of its own, which asks until its standard input ends.

It is told what to ask, and of which releases a reply may be: by name, τ and document ids.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.serving.client import LOST, LoadConnection, connect, post

_DRAIN = 60.0  # seconds that the last replies may take
NO_RELEASE = -1


class CheckedClients:
    """Clients in a closed loop that check each reply against the release it names.

    Attributes:
        releases: By name, its place, its τ and its document ids. Each reply is a row: sent, done, status, place, fault.
    """

    def __init__(self, port: int, queries: list[str], releases: dict[str, tuple[int, float | None, set[str]]]) -> None:
        self.rows: list[tuple[float, float, int, int, bool]] = []
        self.idle = asyncio.Event()
        self._port, self._queries, self._releases = port, queries, releases
        self._sent: dict[LoadConnection, float] = {}
        self._stopping = False
        self._begun: list[asyncio.Task[None]] = []

    async def begin(self, clients: int) -> None:
        """Each asks again as soon as it is answered."""
        for _ in range(clients):
            self._ask(await connect(self._port, self._answered))

    def stop(self) -> None:
        """Ask no more."""
        self._stopping = True

    def _ask(self, connection: LoadConnection) -> None:
        if self._stopping:
            connection.close()
            if not self._sent:
                self.idle.set()
            return
        self._sent[connection] = time.monotonic()
        text = f"{self._queries[len(self.rows) % len(self._queries)]} {len(self.rows)}"  # which no cache knows
        connection.send(post("/search", orjson.dumps({"query": text})))

    def _answered(self, connection: LoadConnection, status: int, body: bytes) -> None:
        sent, done = self._sent.pop(connection), time.monotonic()
        place, fault = self._looked_at(status, body)
        self.rows.append((sent, done, status, place, fault))
        if status == LOST or connection.ends:
            connection.close()
            self._begun.append(asyncio.ensure_future(self.begin(1)))
        else:
            self._ask(connection)

    def _looked_at(self, status: int, body: bytes) -> tuple[int, bool]:
        if status != 200:
            return NO_RELEASE, True
        reply = orjson.loads(body)
        place, tau, documents = self._releases[reply["release"]]
        known = all(result["id"] in documents for result in reply["results"])
        return place, not (known and reply["threshold"] == tau)


async def _run(given: dict[str, Any]) -> list[tuple[float, float, int, int, bool]]:
    releases = {name: (place, tau, set(documents)) for place, (name, tau, documents) in enumerate(given["releases"])}
    clients = CheckedClients(given["port"], given["queries"], releases)
    await clients.begin(given["clients"])
    await asyncio.to_thread(sys.stdin.read)
    clients.stop()
    async with asyncio.timeout(_DRAIN):
        await clients.idle.wait()
    return clients.rows


def main() -> None:
    """The job is a file named as the argument, and its rows are written beside it."""
    job = Path(sys.argv[1])
    rows = np.array(asyncio.run(_run(json.loads(job.read_bytes()))), dtype=np.float64).reshape(-1, 5)
    np.save(job.with_suffix(".npy"), rows)


if __name__ == "__main__":
    main()
