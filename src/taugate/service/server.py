"""A server process: the application on uvicorn, with a drain period between SIGTERM and the end of the process.

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
import functools
import logging
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI

from taugate.service.app import create_app
from taugate.service.http.connection import Connection
from taugate.service.http.connection_table import ConnectionTable
from taugate.service.lifecycle.serving import Serving
from taugate.service.runtime.logs import configure_logging
from taugate.service.runtime.resources import freeze_objects, limit_blas_threads
from taugate.service.settings import Settings
from taugate.service.settings.settings import former_variables, unknown_variables

_log = logging.getLogger(__name__)
_ACCEPTS_PER_TURN = 8
# After this long without a connection no client uses the process any more: kube-proxy, ingress controllers and service
# meshes learn within a second or two that a pod has left the endpoints.
_QUIET_SECONDS = 5.0
# Round trip of the farthest client whose handshake is in progress when new ones are refused.
_HANDSHAKE_SECONDS = 0.25
_SO_ATTACH_FILTER = 26  # a Linux constant that the module `socket` lacks
# Classic BPF on the TCP header of a segment: drop it if SYN (2) is set in byte 13, the flags; else accept all of it.
_DROP_SYN = ((0x30, 0, 0, 13), (0x45, 0, 1, 2), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))


class DrainingServer(uvicorn.Server):
    """uvicorn's server with limits on connections, and a drain period between SIGTERM and its own shutdown."""

    def __init__(
        self,
        app: FastAPI,
        settings: Settings,
        closes_listener: Callable[[], bool] = lambda: True,
        *,
        ignores_interrupts: bool = False,
    ) -> None:
        """Set up the server.

        `closes_listener` returns whether this process is the last to accept from the listening socket; it is called
        once, at the end of the drain period. SIGINT is ignored if another process passes it on as `stop_now`.
        """
        limits = settings.connections
        self._connections = ConnectionTable(settings, app.state.metrics)
        super().__init__(
            uvicorn.Config(
                app,
                http=functools.partial(Connection, self._connections, app.state.steps.refuse_at_once),  # type: ignore[arg-type]  # uvicorn calls it
                h11_max_incomplete_event_size=limits.max_header_bytes,  # also of chunked trailers
                timeout_keep_alive=limits.keep_alive_seconds,  # type: ignore[arg-type]  # call_later accepts a float
                ws="none",  # there are no WebSockets
                log_config=None,  # the root logger handles all logs
                log_level="error",  # a client that sends malformed HTTP must not fill the disk; the metrics count it
                access_log=False,  # the middleware writes that line, with the request id
                server_header=False,
                proxy_headers=False,  # client addresses are not used, and any client can set X-Forwarded-For
                timeout_graceful_shutdown=limits.shutdown_seconds,
            )
        )
        self._serving: Serving = app.state.serving
        self._drain_seconds = limits.drain_seconds
        self._closes_listener, self._ignores_interrupts = closes_listener, ignores_interrupts
        self._drains_until: float | None = None

    def stop_now(self, *_: object) -> None:
        """Stop without a drain period, or end the current one. Requests in progress are completed."""
        self.should_exit, self._drains_until = True, None
        self._announce_end()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start draining on the first SIGTERM. SIGINT ends the drain period; a second SIGINT ends the process."""
        if sig == signal.SIGINT and self._ignores_interrupts:
            return
        if self._drains_until is not None:
            if sig == signal.SIGINT:
                self.stop_now()
            return
        drains = sig == signal.SIGTERM and not self.should_exit and self._serving.has_release
        super().handle_exit(sig, frame)
        self._announce_end()
        if drains and self._drain_seconds:
            self._drains_until = time.monotonic() + self._drain_seconds
            _log.info("draining", extra={"fields": {"seconds": self._drain_seconds}})

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the process is told to stop, and close the connections of late clients meanwhile."""
        checks = asyncio.create_task(self._connections.check_deadlines())
        try:
            await super().serve(sockets)
        finally:
            checks.cancel()

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
    """Make the kernel ignore new clients of a listening socket, while it completes handshakes in progress."""
    # Closing a listening socket resets the connections that are established but not accepted yet, together with
    # their requests. After this call there soon are none. An ignored client tries again a second later, and is
    # then refused before it has sent anything. All duplicates of the socket are affected, in all processes.
    # Returns False if the system cannot do this (macOS) or forbids it (containers with a strict seccomp profile).
    # The drain period then ends without this step.
    if sys.platform != "linux":
        return False
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _DROP_SYN))
    with suppress(OSError):
        option = struct.pack("HP", len(_DROP_SYN), ctypes.addressof(program))
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)
        return True
    return False


def duplicate_listener(listener: socket.socket) -> list[socket.socket]:
    """Return a listening socket, made non-blocking, and duplicates of it."""
    # libuv accepts one connection per socket and event loop turn. With one socket, a client behind a thousand new
    # connections would wait for a thousand turns.
    listener.setblocking(False)  # else dup() would make it block, also in other workers that already accept from it
    return [listener, *(listener.dup() for _ in range(_ACCEPTS_PER_TURN - 1))]


def serve_here(settings: Settings, listener: socket.socket) -> None:
    """Run the service in this process until it is told to stop; raise the error if it cannot load its release."""
    configure_logging(settings.telemetry.log_level)
    limit_blas_threads()
    app = create_app(settings)
    serving: Serving = app.state.serving
    server = DrainingServer(app, settings)
    serving.on_ready, serving.on_failure = freeze_objects, server.stop_now
    # In force until uvicorn sets its own handlers, and again at the end, when uvicorn re-raises the signal that stopped
    # it: the process has stopped as requested, which is not an error.
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, server.stop_now)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until a release is loaded
    log_listening(settings, listener)
    server.run(sockets=duplicate_listener(listener))
    _log.info("stopped")
    if serving.failure is not None:
        raise serving.failure


def log_listening(settings: Settings, listener: socket.socket) -> None:
    """Log the address and the settings, after a warning for each TAUGATE_* variable that is unknown or a former one."""
    for name, nearest in unknown_variables(os.environ).items():
        _log.warning("unknown setting ignored", extra={"fields": {"variable": name, "nearest": nearest}})
    for name, use in former_variables(os.environ).items():
        _log.warning("former setting", extra={"fields": {"variable": name, "use": use}})
    host, port = listener.getsockname()[:2]
    _log.info("listening", extra={"fields": {"host": host, "port": port, "settings": settings.for_log()}})
