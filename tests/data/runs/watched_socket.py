"""A proxy on a Unix socket or a port, which keeps every byte that a client sends to a server."""

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.loopback import HOST


class WatchedSocket:
    """Forwards connections to a server inside the context.

    Attributes:
        connections: What the client has sent over each connection.
    """

    def __init__(self, server: str | int, own: Path | None = None) -> None:
        """Listen on a free port, or on the Unix socket `own`; the server is a port, or the path of its socket."""
        self.connections: list[bytearray] = []
        self._server = server
        if own is None:
            self._listener = socket.create_server((HOST, 0))
            self.port = int(self._listener.getsockname()[1])
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(own))
            self._listener.listen()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if isinstance(self._server, int):
                server = socket.create_connection((HOST, self._server))
            else:
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
            sent = bytearray()
            self.connections.append(sent)
            for source, target, kept in ((client, server, sent), (server, client, bytearray())):
                threading.Thread(target=_forward, args=(source, target, kept), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
    with suppress(OSError):
        while received := source.recv(1 << 16):
            kept += received
            target.sendall(received)
        target.shutdown(socket.SHUT_WR)
