"""How the server is reached: over stdin and stdout, or over streamable HTTP."""

import signal
import socket
from collections.abc import Sequence
from types import FrameType

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from taugate_mcp.messages import say

MCP_PATH = "/mcp"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MAX_BODY = 128 * 1024  # bytes: twice the default of TAUGATE_MAX_BODY_BYTES, as MCP wraps the request
GRACE_SECONDS = 15  # for requests in flight: longer than the client's timeout of 10 s


async def serve_stdio(server: MCPServer) -> None:
    """Serve one client until it closes stdin, or a signal ends the process."""
    # A thread waits for stdin: Python's own handler would wait for that thread. There is nothing to clean up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    await server.run_stdio_async()


class _AnnouncingServer(uvicorn.Server):
    """Says on stderr where it listens, once it answers: a signal before that would cut its start short."""

    async def main_loop(self) -> None:
        for server in self.servers:
            for listener in server.sockets:
                host, port = listener.getsockname()[:2]
                url = f"http://{f'[{host}]' if ':' in host else host}:{port}{MCP_PATH}"
                say(url)
        await super().main_loop()


async def serve_http(server: MCPServer, listener: socket.socket, hosts: Sequence[str] = ()) -> None:
    """Serve any number of clients at /mcp until SIGTERM or SIGINT; requests in flight are answered.

    Args:
        listener: A socket that listens.
        hosts: Names, beside those of loopback, that a request may be addressed to.
    """
    config = uvicorn.Config(
        make_app(server, hosts),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=1000,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    # uvicorn raises the signal that stopped it once more, which would make a clean end look like a kill.
    signal.signal(signal.SIGTERM, _ignore)
    await _AnnouncingServer(config).serve(sockets=[listener])


def make_app(server: MCPServer, hosts: Sequence[str] = ()) -> Starlette:
    """Return the ASGI application: /mcp, and /livez for probes.

    No session is kept between requests, so that any replica can answer any of them.

    Args:
        hosts: As of `serve_http`. A request to another host (421), or from a page of another origin (403), is refused:
            by DNS rebinding, a page in a browser could reach the server otherwise.
    """

    async def livez(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def no_stream(_: Request) -> Response:
        return PlainTextResponse("POST only: this server sends nothing unasked\n", 405, {"Allow": "POST"})

    # Not /readyz: without the service the tools still say what is wrong, which a refused connection does not.
    server.custom_route("/livez", methods=["GET"])(livez)
    names = (*LOOPBACK, *hosts)
    origins = [f"{scheme}://{name}" for name in names for scheme in ("http", "https")]
    app = server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=_MAX_BODY,
        transport_security=TransportSecuritySettings(
            allowed_hosts=[*names, *(f"{name}:*" for name in names)],
            allowed_origins=[*origins, *(f"{origin}:*" for origin in origins)],
        ),
    )
    # Before the SDK's route, which would keep a stream open on which nothing is ever sent.
    app.router.routes.insert(0, Route(MCP_PATH, no_stream, methods=["GET"]))
    return app


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Args:
        port: 0 takes a free one.

    Raises:
        OSError: .
    """
    if ":" not in host:
        return socket.create_server((host, port))
    both = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=both)


def _ignore(_: int, __: FrameType | None) -> None:
    pass
