"""Connections that ask nothing, in a process of their own: half of them silent, half with half a body each.

`python -m benchmarks.reliability.idle_connections PORT NUMBER` keeps so many open until its stdin is closed: what the service
closes is opened again. A line on stdout says when all are open; the last one how many were opened in all.
"""

import contextlib
import select
import socket
import sys

_HOST = "127.0.0.1"  # no load leaves the machine
_HALF = b'POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n{"query": "'
_AT_ONCE = 100  # so that a service which closes them all does not meet them all again in the same millisecond
_LOOK = 0.05  # seconds


class IdleConnections:
    """Idle connections to a port of this machine.

    Attributes:
        number: How many are held open.
    """

    def __init__(self, port: int, number: int) -> None:
        self.opened = 0
        self._port, self._number = port, number
        self._connections: dict[int, socket.socket] = {}
        self._closed = select.epoll()

    @property
    def complete(self) -> bool:
        """True if all of them are open."""
        return len(self._connections) >= self._number

    def maintain(self) -> None:
        """Open some of the connections that are missing, and drop those that the service closed."""
        for _ in range(min(_AT_ONCE, self._number - len(self._connections))):
            self._open()
        for descriptor, _ in self._closed.poll(0, self._number):
            self._closed.unregister(descriptor)
            self._connections.pop(descriptor).close()

    def _open(self) -> None:
        connection = socket.create_connection((_HOST, self._port), timeout=30)
        connection.setblocking(False)
        if self.opened % 2:
            with contextlib.suppress(OSError):
                connection.send(_HALF)
        self.opened += 1
        self._connections[connection.fileno()] = connection
        self._closed.register(connection, select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR)


def main() -> None:
    """Keep them open until stdin is closed."""
    idle, told = IdleConnections(int(sys.argv[1]), int(sys.argv[2])), False
    while not select.select([sys.stdin], [], [], _LOOK if idle.complete else 0)[0]:
        idle.maintain()
        if idle.complete and not told:
            told = True
            print("all", flush=True)
    print(idle.opened, flush=True)


if __name__ == "__main__":
    main()
