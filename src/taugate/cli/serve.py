"""`taugate serve`: bind the address, load the release, and answer until SIGTERM."""

import argparse
import socket

from taugate.cli.terminal.options import add_setting_flags, given_settings
from taugate.errors import InputError
from taugate.service.settings import Settings, read_settings

_BACKLOG = 2048  # uvicorn's own default
# Of each connection, which Linux doubles. By itself it would let one that nobody reads grow to 4 MiB, of the kernel's
# memory and out of the service's sight: 600 of them take 1.7 GB, and 85 MB with this (docs/benchmarks/attacks.md). It
# sends 64 MB/s to a client that is a millisecond away.
_SEND_BUFFER_BYTES = 64 << 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate serve` to its parser."""
    parser.description = "Every setting is also a TAUGATE_* variable; docs/settings.md lists them."
    add_setting_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop.

    Args:
        arguments: The parsed command line.

    Returns:
        The exit code.

    Raises:
        InputError: For settings that cannot be used and ReleaseError where there is no release to serve.
    """
    from taugate.service.lifecycle.loading import current_release  # loads faiss and onnxruntime: help does without

    settings = read_settings(**given_settings(arguments))
    current_release(settings, at_start=True)  # before anything is bound: the usual mistake is one without a release
    serve(settings, listen(settings))
    return 0


def serve(settings: Settings, listener: socket.socket) -> None:
    """Run the service in as many processes as the settings say, until it is told to stop.

    Args:
        settings: Of the service.
        listener: A listening TCP socket, as of `listen`.

    Raises:
        ReleaseError: Where the release cannot be loaded.
    """
    from taugate.service.process.server import serve_here
    from taugate.service.process.workers import serve_in_workers
    from taugate.service.runtime.resources import raise_file_limit

    raise_file_limit()
    (serve_here if settings.compute.workers == 1 else serve_in_workers)(settings, listener)


def listen(settings: Settings) -> socket.socket:
    """Bind a TCP socket to the host and port of the settings, and listen.

    Raises:
        InputError: Where the address cannot be bound, and where other machines would reach it without API keys.
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
