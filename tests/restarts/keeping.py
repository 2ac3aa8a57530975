"""Clients that keep their connection and never retry, as programs of their own.

`python -m tests.restarts.keeping LIBRARY CLIENTS ADDRESS…` asks until its stdin is closed, and then
prints one line of JSON. A new connection goes to the first address that accepts one; LIBRARY is httpx or urllib3.
keeping.go does the same.
"""

import json
import random
import sys
import threading
from collections.abc import Callable, Sequence

import httpx
import urllib3

_TIMEOUT_SECONDS = 60.0
_MEAN_PAUSE_SECONDS = 0.05
Post = Callable[[str], int]  # the status of the reply to a query


class NotConnectedError(Exception):
    """No connection could be opened, so nothing was sent."""


def httpx_client(address: str) -> Post:
    """Return a client with the defaults of httpx, which keeps a connection and never retries."""
    http = httpx.Client(base_url=f"http://{address}", timeout=_TIMEOUT_SECONDS)

    def post(query: str) -> int:
        try:
            return http.post("/search", json={"query": query}).status_code
        except httpx.ConnectError as error:
            raise NotConnectedError from error

    return post


def urllib3_client(address: str) -> Post:
    """Return a client of urllib3 that keeps a connection and never retries."""
    host, port = address.split(":")
    pool = urllib3.HTTPConnectionPool(host, int(port), maxsize=1, timeout=_TIMEOUT_SECONDS)

    def post(query: str) -> int:
        try:
            return pool.request("POST", "/search", json={"query": query}, retries=False).status
        except urllib3.exceptions.NewConnectionError as error:
            raise NotConnectedError from error

    return post


LIBRARIES: dict[str, Callable[[str], Post]] = {"httpx": httpx_client, "urllib3": urllib3_client}


class KeepingClients:
    """Threads that ask, and the outcomes of their requests."""

    def __init__(self, library: str, clients: int, addresses: Sequence[str]) -> None:
        """Set up as many clients, which begin with different addresses."""
        self.answered = self.refused = self.unready = 0
        self.other: list[int] = []
        self.lost: list[str] = []
        self._make_client, self._addresses = LIBRARIES[library], addresses
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(clients)]

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> dict[str, object]:
        """Finish the requests under way, and return the outcomes."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        names = ("answered", "refused", "unready", "other", "lost")
        return {name: getattr(self, name) for name in names}

    def _run(self, number: int) -> None:
        clients = [self._make_client(address) for address in self._addresses]
        choice = random.Random(number)  # noqa: S311 (no secret)
        current = number
        while not self._stop.wait(choice.expovariate(1 / _MEAN_PAUSE_SECONDS)):
            query = f"What does permit {choice.randrange(1000)} cost?"
            for _ in clients:
                try:
                    status = clients[current % len(clients)](query)
                except NotConnectedError:
                    current += 1
                    continue
                except Exception as error:  # noqa: BLE001 (whatever it is, the request was sent and has no reply)
                    self._count_lost(repr(error))
                else:
                    self._count(status)
                break
            else:
                with self._lock:
                    self.refused += 1

    def _count_lost(self, reason: str) -> None:
        with self._lock:
            self.lost.append(reason)

    def _count(self, status: int) -> None:
        with self._lock:
            self.answered += status == 200
            self.unready += status == 503
            if status not in {200, 503}:
                self.other.append(status)


def main() -> None:
    """Ask until stdin is closed."""
    clients = KeepingClients(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
    clients.start()
    sys.stdin.read()
    sys.stdout.write(json.dumps(clients.stop()) + "\n")


if __name__ == "__main__":
    main()
