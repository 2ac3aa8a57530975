"""`taugate serve`: bind the address, load the release, and answer until SIGTERM."""

import argparse
import socket
from typing import Any

from pydantic import ValidationError

from taugate.cli.terminal.options import variable_help
from taugate.errors import InputError
from taugate.service.settings import Settings

_BACKLOG = 2048  # uvicorn's own default
# Of each connection, which Linux doubles. By itself it would let one that nobody reads grow to 4 MiB, of the kernel's
# memory and out of the service's sight: 600 of them take 1.7 GB, and 85 MB with this (docs/benchmarks/attacks.md). It
# sends 64 MB/s to a client that is a millisecond away.
_SEND_BUFFER_BYTES = 64 << 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate serve` to its parser."""
    parser.description = "Every setting is also a TAUGATE_* variable; docs/settings.md lists them."
    parser.add_argument("--releases", metavar="DIR_OR_URL", help=variable_help("releases"))
    parser.add_argument("--host", help=variable_help("host"))
    parser.add_argument("--port", type=int, help=variable_help("port"))
    parser.add_argument("--workers", type=int, help=variable_help("workers"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop.

    arguments: the parsed command line. Returns the exit code. Raises InputError for settings that cannot be used and
    ReleaseError where there is no release to serve.
    """
    from taugate.service.lifecycle.loading import (
        current_release,
    )  # loads faiss and onnxruntime, which help does without

    settings = read_settings(**{name: getattr(arguments, name) for name in ("releases", "host", "port", "workers")})
    current_release(settings, at_start=True)  # before anything is bound: the usual mistake is one without a release
    serve(settings, listen(settings))
    return 0


def read_settings(**options: Any) -> Settings:  # noqa: ANN401 (a value for any of the settings)
    """Read the settings from the environment and from options, which go first.

    options: values by the variable's name, as of `Settings`; those that are None were not given. Raises InputError for
    a value that cannot be used.
    """
    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        raise InputError(_settings_message(error)) from error


def serve(settings: Settings, listener: socket.socket) -> None:
    """Run the service in as many processes as the settings say, until it is told to stop.

    settings: of the service; listener: a listening TCP socket, as of `listen`. Raises ReleaseError where the release
    cannot be loaded.
    """
    from taugate.service.process.server import serve_here
    from taugate.service.process.workers import serve_in_workers
    from taugate.service.runtime.resources import raise_file_limit

    raise_file_limit()
    (serve_here if settings.compute.workers == 1 else serve_in_workers)(settings, listener)


def listen(settings: Settings) -> socket.socket:
    """Bind a TCP socket to the host and port of the settings, and listen.

    Raises InputError where the address cannot be bound, and where other machines would reach it without API keys.
    """
    from taugate.service.access.keys import check_access
    from taugate.service.runtime.traces import check_installed

    check_access(settings)
    check_installed(settings.telemetry.otlp_endpoint)
    host, port = settings.listen.host, settings.listen.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # socket.create_server leaves out the protocol, and asyncio sets TCP_NODELAY only where it is named: without, every
    # reply on a kept connection waits some 40 ms for the client's delayed ACK.
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
    """The first thing that is wrong, in one line."""
    detail = error.errors()[0]
    if not detail["loc"]:  # a rule between two settings, which names them itself
        return detail["msg"]
    group_and_name = detail["loc"][:2]  # what comes behind says which part of a union failed
    name = str(group_and_name[-1])
    if detail["type"] == "missing":
        return f"no {name} given: use --{name} DIR or TAUGATE_{name.upper()}"
    return f"TAUGATE_{name.upper()} (or --{name}): {detail['msg']}, got {detail['input']!r}"
