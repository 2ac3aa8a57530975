"""A TCP proxy in front of Redis that delays or replaces its replies."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from tests.loopback import HOST, LoopbackTCPServer


class RedisProxy(LoopbackTCPServer):
    """A proxy in front of a Redis; a test may set its attributes at any time.

    Attributes:
        delay: Returns the seconds by which a reply is delayed.
        answer: Bytes that replace every reply; None for the replies of Redis.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self._server = (HOST, port)
        self.url = f"redis://{HOST}:{self.port}/0"
        self.delay: Callable[[], float] = lambda: 0.0
        self.answer: bytes | None = None
        self._open: set[socket.socket] = set()

    def hang_up(self) -> None:
        """Close every connection, so that clients connect again."""
        for connection in [*self._open]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._server) as server:
            self._open |= {client, server}
            threading.Thread(target=self._answers, args=(server, client), daemon=True).start()
            while request := client.recv(1 << 16):
                if self.answer is None:
                    server.sendall(request)
                else:
                    client.sendall(self.answer)
            self._open -= {client, server}

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while reply := server.recv(1 << 16):
                time.sleep(self.delay())
                client.sendall(reply)

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self.hang_up()
