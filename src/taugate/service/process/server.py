"""One process that serves: the application on uvicorn, with a socket that is listening already."""

import logging
import os
import signal
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from taugate.service.api.app import create_app
from taugate.service.lifecycle.serving import Serving
from taugate.service.process.connection import ConnectionProgress, HttpConnection
from taugate.service.process.draining import DrainingServer
from taugate.service.runtime.logs import configure_logging
from taugate.service.runtime.resources import freeze_objects, limit_blas_threads
from taugate.service.settings import Settings
from taugate.service.settings.reading import unknown_variables

_log = logging.getLogger("taugate.serve")
_ACCEPTS_PER_TURN = 8


def make_server(app: FastAPI, settings: Settings, closes_listener: Callable[[], bool] = lambda: True) -> DrainingServer:
    """Return a server of an application, set up alike for one process and for workers.

    Args:
        app: What is served.
        settings: Of the service.
        closes_listener: See `DrainingServer`.
    """
    limits = settings.connections
    config = uvicorn.Config(
        ConnectionProgress(app),
        http=HttpConnection,
        h11_max_incomplete_event_size=limits.max_header_bytes,  # also of chunked trailers
        timeout_keep_alive=limits.keep_alive_seconds,  # type: ignore[arg-type]  # a float works: it goes to call_later
        ws="none",  # there is nothing here to upgrade to
        log_config=None,  # the root logger has it all already
        log_level="error",  # a client that sends no HTTP must not fill the disk; the metrics count it
        access_log=False,  # RequestContext writes that line, with the request id
        server_header=False,
        proxy_headers=False,  # nothing here asks who the client is, and anybody can write X-Forwarded-For
        timeout_graceful_shutdown=limits.shutdown_seconds,
    )
    return DrainingServer(config, app.state.serving, app.state.connections, limits.drain_seconds, closes_listener)


def duplicate_listener(listener: socket.socket) -> list[socket.socket]:
    """Return the listening socket and duplicates of it: libuv accepts one connection of each per event loop turn.

    With one socket, whoever comes behind a thousand connections waits for a thousand turns.

    Args:
        listener: Becomes non-blocking.
    """
    listener.setblocking(False)  # else dup() would let it block, in other workers as well, which accept from it already
    return [listener, *(listener.dup() for _ in range(_ACCEPTS_PER_TURN - 1))]


def serve_here(settings: Settings, listener: socket.socket) -> None:
    """Run the service in this process until it is told to stop.

    Args:
        settings: Of the service.
        listener: A listening socket. Raises what kept it from loading its release.
    """
    configure_logging(settings.telemetry.log_level)
    limit_blas_threads()
    app = create_app(settings)
    serving: Serving = app.state.serving
    server = make_server(app, settings)
    serving.on_ready, serving.on_failure = freeze_objects, server.stop_now
    # In force until uvicorn has handlers of its own, and again at the end, when it raises the signal that stopped it
    # once more: by then it did its work, and that is no error.
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, server.stop_now)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a release to compare with
    log_listening(settings, listener)
    server.run(sockets=duplicate_listener(listener))
    _log.info("stopped")
    if serving.failure is not None:
        raise serving.failure


def log_listening(settings: Settings, listener: socket.socket) -> None:
    """Log the address and the settings of the service, after warnings of variables that look like settings but are not.

    Args:
        settings: Of the service.
        listener: A listening socket.
    """
    for name, nearest in unknown_variables(os.environ).items():
        _log.warning("unknown setting ignored", extra={"fields": {"variable": name, "nearest": nearest}})
    host, port = listener.getsockname()[:2]
    _log.info("listening", extra={"fields": {"host": host, "port": port, "settings": settings.for_log()}})
