"""One process that answers: the application on uvicorn, on a socket that is listened on already."""

import logging
import signal
import socket
from collections.abc import Mapping
from typing import Any

import uvicorn

from taugate.service.api.app import create_app
from taugate.service.lifecycle.serving import Serving
from taugate.service.runtime.logs import configure
from taugate.service.runtime.resources import one_for_blas, settle
from taugate.service.settings import Settings

_log = logging.getLogger("taugate.serve")
_ACCEPTED_IN_A_TURN = 8


def options(settings: Settings) -> Mapping[str, Any]:
    """What uvicorn is told, however many processes there are."""
    return {
        "http": "taugate.service.process.connection:Connection",
        "h11_max_incomplete_event_size": settings.connections.max_header_bytes,  # also of chunked trailers
        "ws": "none",  # there is nothing here to upgrade to
        "log_config": None,  # the root logger has it all already
        "log_level": "error",  # a stranger who sends what is no HTTP fills no disk: the metrics count it
        "access_log": False,  # RequestScope writes that line, with the request id
        "server_header": False,
        "proxy_headers": False,  # nothing here asks who the client is, and anybody can write X-Forwarded-For
        "timeout_graceful_shutdown": settings.connections.shutdown_seconds,
    }


def accepting(listener: socket.socket) -> list[socket.socket]:
    """The listening socket several times over: libuv accepts one connection of each in a turn of the event loop.

    With one of them, whoever comes behind a crowd of connections waits for as many turns.
    """
    listener.setblocking(False)  # else dup() would let it block, in other workers as well, which accept from it already
    return [listener, *(listener.dup() for _ in range(_ACCEPTED_IN_A_TURN - 1))]


def serve_here(settings: Settings, listener: socket.socket) -> None:
    """Run the service in this process. Raises what kept it from loading its release."""
    configure(settings.telemetry.log_level)
    one_for_blas()
    app = create_app(settings)
    serving: Serving = app.state.serving
    server = uvicorn.Server(uvicorn.Config(app, **options(settings)))

    def stop_serving(*_: object) -> None:
        server.should_exit = True

    serving.on_ready, serving.on_failure = settle, stop_serving
    # In force until uvicorn has handlers of its own, and again at the end, when it raises the signal that stopped it
    # once more: by then it did its work, and that is no error.
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, stop_serving)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a release to compare with
    announce(settings, listener)
    server.run(sockets=accepting(listener))
    _log.info("stopped")
    if serving.failure is not None:
        raise serving.failure


def announce(settings: Settings, listener: socket.socket) -> None:
    """Say once where it listens and with what."""
    host, port = listener.getsockname()[:2]
    _log.info("listening", extra={"fields": {"host": host, "port": port, "settings": settings.for_log()}})
