"""The drain period between SIGTERM and the end of a process, so that no client loses a request.

A client with a kept-alive connection may send its next request at any moment. If the service closes the connection at
that moment, the request is lost, and the client cannot tell whether it was executed. So a connection is closed only

1. after a reply with `Connection: close`, which every reply has after SIGTERM,
2. when its client closes it, or
3. at the end of the drain period, if it was idle throughout.

New connections are accepted in the meantime, because proxies need some seconds to notice that `/readyz` is 503, or that
the pod has left the endpoints. SIGINT, as from Ctrl-C at a terminal, ends the period at once.
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

_log = logging.getLogger(__name__)
# After this long without a connection no client uses the process any more: kube-proxy, ingress controllers and service
# meshes learn within a second or two that a pod has left the endpoints.
_QUIET_SECONDS = 5.0
# Round trip of the farthest client whose handshake is in progress when new ones are refused.
_HANDSHAKE_SECONDS = 0.25
_SO_ATTACH_FILTER = 26  # a Linux constant that the module `socket` lacks
# Classic BPF on the TCP header of a segment: drop it if SYN (2) is set in byte 13, the flags; else accept all of it.
_DROP_SYN = ((0x30, 0, 0, 13), (0x45, 0, 1, 2), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))


class DrainingServer(uvicorn.Server):
    """uvicorn's server with a drain period between SIGTERM and its own shutdown.

    Attributes:
        ignores_interrupts: Whether SIGINT is ignored, because another process passes it on as a call of `stop_now`.
    """

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
            config: Configuration of uvicorn.
            serving: State of the process, which fails the readiness probe while draining.
            connections: Connections of this process.
            drain_seconds: Longest drain period.
            closes_listener: Function that returns whether this process is the last to accept from the listening
                socket. It is called once, at the end of the period.
        """
        super().__init__(config)
        self._serving, self._connections, self._seconds = serving, connections, drain_seconds
        self._closes_listener = closes_listener
        self._drains_until: float | None = None
        self.ignores_interrupts = False

    def stop_now(self, *_: object) -> None:
        """Stop without a drain period, or end the current one. Requests in progress are completed."""
        self.should_exit, self._drains_until = True, None
        self._announce_end()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start draining on the first SIGTERM. SIGINT ends the drain period; a second SIGINT ends the process."""
        if sig == signal.SIGINT and self.ignores_interrupts:
            return
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
        """Return whether the main loop ends; uvicorn calls this ten times a second."""
        if not await super().on_tick(counter):
            return False
        unused = self._connections.seconds_unused() >= _QUIET_SECONDS
        return self._drains_until is None or unused or time.monotonic() >= self._drains_until

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, complete the requests in progress, and close the connections."""
        if self._drains_until is not None and sockets and self._closes_listener() and refuse_handshakes(sockets[0]):
            await asyncio.sleep(_HANDSHAKE_SECONDS)  # the event loop accepts the established connections meanwhile
        self._drains_until = None
        await super().shutdown(sockets)

    def _announce_end(self) -> None:
        self._serving.announce_end()
        self._connections.announce_end()


def refuse_handshakes(listener: socket.socket) -> bool:
    """Make the kernel ignore new clients of a listening socket, while it completes handshakes in progress.

    Closing a listening socket resets the connections that are established but not accepted yet, together with their
    requests. After this call there soon are none. An ignored client tries again a second later, and is then refused
    before it has sent anything. All duplicates of the socket are affected, in all processes.

    Returns:
        False if the system cannot do this (macOS) or forbids it (containers with a strict seccomp profile). The drain
        period then ends without this step.
    """
    if sys.platform != "linux":
        return False
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _DROP_SYN))
    with suppress(OSError):
        option = struct.pack("HP", len(_DROP_SYN), ctypes.addressof(program))
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)
        return True
    return False
