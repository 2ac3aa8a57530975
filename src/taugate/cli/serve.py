"""`taugate serve`: bind the address, load the release, and serve until SIGTERM."""

import socket
from typing import Any

from taugate.cli.terminal.command import Command
from taugate.cli.terminal.options import setting_parameters
from taugate.errors import InputError
from taugate.service.settings import Settings, read_settings

_BACKLOG = 2048  # uvicorn's own default
# Send buffer of a connection; Linux doubles it. By default it grows to 4 MiB of kernel memory if the client does not
# read: 600 such connections take 1.7 GB, and 85 MB with this limit (docs/benchmarks/attacks.md). It still allows
# 64 MB/s to a client a millisecond away.
_SEND_BUFFER_BYTES = 64 << 10


def run(**flags: Any) -> int:  # noqa: ANN401 (of the types of the settings)
    """Serve until a signal stops the service.

    Raises:
        InputError: If a setting cannot be used.
        ReleaseError: If there is no release to serve.
    """
    from taugate.service.lifecycle.loading import current_release  # slow: loads faiss and onnxruntime

    settings = read_settings(**flags)
    current_release(settings, at_start=True)  # before binding: a missing release is the usual mistake
    serve(settings, listen(settings))
    return 0


command = Command(
    "serve",
    callback=run,
    params=setting_parameters(),
    help="Serve the current release over HTTP. Every setting is also a TAUGATE_* variable; docs/settings.md lists "
    "them.",
)


def serve(settings: Settings, listener: socket.socket) -> None:
    """Run the service in the configured number of processes on the socket of `listen`, until a signal stops it.

    Raises:
        ReleaseError: If the release cannot be loaded.
    """
    from taugate.service.runtime.resources import raise_file_limit
    from taugate.service.server import serve_here
    from taugate.service.workers import serve_in_workers

    raise_file_limit()
    (serve_here if settings.compute.workers == 1 else serve_in_workers)(settings, listener)


def listen(settings: Settings) -> socket.socket:
    """Return a TCP socket that listens on the configured host and port.

    Raises:
        InputError: If the address cannot be bound, or other machines could reach it without API keys.
    """
    from taugate.service.access.keys import check_access
    from taugate.service.runtime.traces import check_installed

    check_access(settings)
    check_installed(settings.telemetry.otlp_endpoint)
    host, port = settings.listen.host, settings.listen.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the socket names its protocol, which socket.create_server omits. Without it,
    # every reply on a kept-alive connection waits some 40 ms for the client's delayed ACK.
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
