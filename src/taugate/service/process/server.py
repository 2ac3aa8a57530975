"""Serving in a single process: the application on uvicorn, with a socket that is already listening."""

import logging
import os
import signal
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from taugate.service.app import create_app
from taugate.service.lifecycle.serving import Serving
from taugate.service.process.connection import ConnectionProgress, HttpConnection
from taugate.service.process.draining import DrainingServer
from taugate.service.runtime.logs import configure_logging
from taugate.service.runtime.resources import freeze_objects, limit_blas_threads
from taugate.service.settings import Settings
from taugate.service.settings.reading import unknown_variables

_log = logging.getLogger(__name__)
_ACCEPTS_PER_TURN = 8


def make_server(app: FastAPI, settings: Settings, closes_listener: Callable[[], bool] = lambda: True) -> DrainingServer:
    """Return a server for an application, with the same configuration for a single process and for workers.

    Args:
        app: The application.
        settings: Settings of the service.
        closes_listener: Argument of `DrainingServer`.
    """
    limits = settings.connections
    config = uvicorn.Config(
        ConnectionProgress(app),
        http=HttpConnection,
        h11_max_incomplete_event_size=limits.max_header_bytes,  # also of chunked trailers
        timeout_keep_alive=limits.keep_alive_seconds,  # type: ignore[arg-type]  # call_later accepts a float
        ws="none",  # there are no WebSockets
        log_config=None,  # the root logger handles all logs
        log_level="error",  # a client that sends malformed HTTP must not fill the disk; the metrics count it
        access_log=False,  # RequestContext writes that line, with the request id
        server_header=False,
        proxy_headers=False,  # client addresses are not used, and any client can set X-Forwarded-For
        timeout_graceful_shutdown=limits.shutdown_seconds,
    )
    return DrainingServer(config, app.state.serving, app.state.connections, limits.drain_seconds, closes_listener)


def duplicate_listener(listener: socket.socket) -> list[socket.socket]:
    """Return a listening socket, made non-blocking, and duplicates of it.

    libuv accepts one connection per socket and event loop turn. With one socket, a client behind a thousand new
    connections would wait for a thousand turns.
    """
    listener.setblocking(False)  # else dup() would make it block, also in other workers that already accept from it
    return [listener, *(listener.dup() for _ in range(_ACCEPTS_PER_TURN - 1))]


def serve_here(settings: Settings, listener: socket.socket) -> None:
    """Run the service in this process until it is told to stop; raise the error if it cannot load its release."""
    configure_logging(settings.telemetry.log_level)
    limit_blas_threads()
    app = create_app(settings)
    serving: Serving = app.state.serving
    server = make_server(app, settings)
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
    """Log the address and the settings of the service, after a warning for each unknown TAUGATE_* variable."""
    for name, nearest in unknown_variables(os.environ).items():
        _log.warning("unknown setting ignored", extra={"fields": {"variable": name, "nearest": nearest}})
    host, port = listener.getsockname()[:2]
    _log.info("listening", extra={"fields": {"host": host, "port": port, "settings": settings.for_log()}})
