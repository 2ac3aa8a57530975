"""Loopback ports, and servers on them in the process of the test."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class LoopbackHTTPServer:
    """An HTTP server on a free port, which listens inside the context and handles each connection in a thread."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        # Handlers write heads and bodies apart, and a body would wait 40 ms for the client's delayed acknowledgement.
        handler.disable_nagle_algorithm = True
        self._server = ThreadingHTTPServer((HOST, 0), handler)
        self.url = f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class LoopbackTCPServer:
    """A TCP server on a free port, which accepts inside the context; a subclass serves each connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])

    def serve(self, client: socket.socket) -> None:
        """Serve one connection in a new thread, and close its socket."""
        raise NotImplementedError

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
