"""A TCP proxy in front of Redis that delays or replaces its answers."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from tests.loopback import HOST, LoopbackTCPServer


class RedisProxy(LoopbackTCPServer):
    """A proxy in front of a Redis.

    Attributes:
        port: Of the Redis. Attributes to set at any time: delay, returns the seconds that an answer is held back;
            answer, bytes that are sent in place of the server's, None for its own.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self._server = (HOST, port)
        self.url = f"redis://{HOST}:{self.port}/0"
        self.delay: Callable[[], float] = lambda: 0.0
        self.answer: bytes | None = None
        self._open: set[socket.socket] = set()

    def hang_up(self) -> None:
        """End every connection, so that the next ones are of those who know nothing yet."""
        for each in [*self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._server) as server:
            self._open |= {client, server}
            threading.Thread(target=self._answers, args=(server, client), daemon=True).start()
            while asked := client.recv(1 << 16):
                if self.answer is None:
                    server.sendall(asked)
                else:
                    client.sendall(self.answer)
            self._open -= {client, server}

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while answered := server.recv(1 << 16):
                time.sleep(self.delay())
                client.sendall(answered)

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self.hang_up()
