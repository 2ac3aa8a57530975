"""What happens between SIGTERM and the end of a process, so that no client loses a request.

A client that keeps its connection may send the next request at any moment. If the service closes the connection at that
moment, the request is lost, and the client cannot tell whether it was executed. So a connection ends only

1. after a reply that said `Connection: close`, which every reply says after SIGTERM,
2. because its client closed it, or
3. at the end of the drain period, when it has been idle for the whole of it.

New connections are served meanwhile: proxies need some seconds to notice that `/readyz` is 503, or that the pod has
left the endpoints. SIGINT, as of Ctrl-C at a terminal, ends the period at once.
"""

import asyncio
import ctypes
import logging
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import uvicorn

from taugate.service.api.connections import ConnectionTable
from taugate.service.lifecycle.serving import Serving

_log = logging.getLogger("taugate.serve")
# Without any connection for so long, no client uses this process any more: kube-proxy, ingress controllers and service
# meshes learn within a second or two that a pod has left the endpoints.
_QUIET_SECONDS = 5.0
# Round trip of the farthest client whose handshake is under way when new ones are turned away.
_HANDSHAKE_SECONDS = 0.25
_SO_ATTACH_FILTER = 26  # of Linux, which the module `socket` does not name
# Classic BPF on a segment's TCP header: drops it if byte 13, the flags, has SYN (2), and else accepts all of it.
_DROP_SYN = ((0x30, 0, 0, 13), (0x45, 0, 1, 2), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))


class DrainingServer(uvicorn.Server):
    """uvicorn's server with a drain period between SIGTERM and its own shutdown."""

    def __init__(
        self,
        config: uvicorn.Config,
        serving: Serving,
        connections: ConnectionTable,
        drain_seconds: float,
        closes_listener: Callable[[], bool] = lambda: True,
    ) -> None:
        """Set up the server.

        Args:
            config: uvicorn's.
            serving: Fails the readiness probe while draining.
            connections: Of this process.
            drain_seconds: Longest drain period.
            closes_listener: Whether this process is the last to accept from its listening socket, asked once at the end
                of the period.
        """
        super().__init__(config)
        self._serving, self._connections, self._seconds = serving, connections, drain_seconds
        self._closes_listener = closes_listener
        self._drains_until: float | None = None

    def stop_now(self, *_: object) -> None:
        """Stop without a drain period, or end the one under way; requests in progress are answered."""
        self.should_exit, self._drains_until = True, None
        self._announce_end()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain at the first SIGTERM. SIGINT ends that, and a further SIGINT ends the process at once."""
        if self._drains_until is not None:
            if sig == signal.SIGINT:
                self.stop_now()
            return
        drains = sig == signal.SIGTERM and not self.should_exit and self._serving.has_release
        super().handle_exit(sig, frame)
        self._announce_end()
        if drains and self._seconds:
            self._drains_until = time.monotonic() + self._seconds
            _log.info("draining", extra={"fields": {"seconds": self._seconds}})

    async def on_tick(self, counter: int) -> bool:
        """Return whether the main loop ends, which it asks ten times a second."""
        if not await super().on_tick(counter):
            return False
        unused = self._connections.seconds_unused() >= _QUIET_SECONDS
        return self._drains_until is None or unused or time.monotonic() >= self._drains_until

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, answer the requests in progress, and close the connections."""
        if self._drains_until is not None and sockets and self._closes_listener() and refuse_handshakes(sockets[0]):
            await asyncio.sleep(_HANDSHAKE_SECONDS)  # in which the event loop accepts what has been established
        self._drains_until = None
        await super().shutdown(sockets)

    def _announce_end(self) -> None:
        self._serving.announce_end()
        self._connections.announce_end()


def refuse_handshakes(listener: socket.socket) -> bool:
    """Have the kernel ignore new clients of a listening socket, while it completes handshakes that are under way.

    To close a listening socket resets the connections that the kernel has established and the process has not accepted,
    with the requests that they bring. After this call there soon are none. A client that is ignored tries again a
    second later, and is then refused: it has sent nothing.

    Args:
        listener: All its duplicates, in all processes, are affected.

    Returns:
        False if the system cannot do this.
    """
    if sys.platform != "linux":
        return False
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _DROP_SYN))
    with suppress(OSError):
        option = struct.pack("HP", len(_DROP_SYN), ctypes.addressof(program))
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)
        return True
    return False
