"""`taugate serve`: bind, load, answer until SIGTERM, and leave no request behind."""

import argparse
import socket
from typing import Any

from pydantic import ValidationError

from taugate.errors import InputError
from taugate.service.access.keys import check_access
from taugate.service.lifecycle.loading import current_release
from taugate.service.process.server import serve_here
from taugate.service.process.workers import serve_in_workers
from taugate.service.runtime.resources import raise_file_limit
from taugate.service.runtime.traces import check_installed
from taugate.service.settings import Settings

_BACKLOG = 2048  # uvicorn's own default
# Of each connection, which Linux doubles. By itself it would let one that nobody reads grow to 4 MiB, of the kernel's
# memory and out of the service's sight: 600 of them take 1.7 GB, and 85 MB with this (docs/benchmarks/attacks.md). It
# sends 64 MB/s to a client that is a millisecond away.
_SEND_BUFFER_BYTES = 64 << 10


def add_parser(commands: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the subcommand `serve`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "serve",
        help="answer searches from the current release",
        description="Every setting is also a TAUGATE_* variable; docs/settings.md lists them.",
    )
    parser.add_argument("--releases", metavar="DIR_OR_URL", help="where releases are kept (TAUGATE_RELEASES)")
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default 8000)")
    parser.add_argument("--workers", type=int, help="processes that answer (default: one for every four processors)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop. Raises InputError or ReleaseError when there is nothing to serve."""
    settings = read_settings(**{name: getattr(arguments, name) for name in ("releases", "host", "port", "workers")})
    current_release(settings, at_start=True)  # before anything is bound: the usual mistake is one without a release
    serve(settings, listen(settings))
    return 0


def read_settings(**given: Any) -> Settings:  # noqa: ANN401 (a value for any of the settings)
    """Settings from the environment, with what is given and not None in front. Raises InputError."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise InputError(_settings_message(error)) from error


def serve(settings: Settings, listener: socket.socket) -> None:
    """Run the service on a listening socket, in as many processes as the settings say."""
    raise_file_limit()
    (serve_here if settings.workers == 1 else serve_in_workers)(settings, listener)


def listen(settings: Settings) -> socket.socket:
    """A listening TCP socket. Raises InputError, also where nobody would keep strangers out.

    The protocol is named, which socket.create_server leaves out: asyncio sets TCP_NODELAY only where it is, and without
    it every reply on a kept connection waits some 40 ms for the client's delayed ACK.
    """
    check_access(settings)
    check_installed(settings.otlp_endpoint)
    host, port = settings.host, settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot listen on {host} port {port}: {error.strerror}; give another --host or --port"
        ) from error


def _settings_message(error: ValidationError) -> str:
    detail = error.errors()[0]
    if not detail["loc"]:  # a rule between two settings, which names them itself
        return detail["msg"]
    name = str(detail["loc"][0])
    if detail["type"] == "missing":
        return f"no {name} given: use --{name} DIR or TAUGATE_{name.upper()}"
    return f"TAUGATE_{name.upper()} (or --{name}): {detail['msg']}, got {detail['input']!r}"
