"""A TCP proxy in front of a server, that does to what passes whatever it is told to."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Between:
    """`delay`: seconds that an answer is held back; `answer`: what is said in place of the server, where not None."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.delay: Callable[[], float] = lambda: 0.0
        self.answer: bytes | None = None
        self._open: set[socket.socket] = set()

    def hang_up(self) -> None:
        """End every connection, so that the next ones are of those who know nothing yet."""
        for each in [*self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
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

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
