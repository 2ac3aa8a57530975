"""Transports of the server: stdin and stdout, or streamable HTTP."""

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
_MAX_BODY = 128 * 1024  # bytes: twice the default limit of a body, because MCP wraps the request
GRACE_SECONDS = 15  # for requests in progress; longer than the client's timeout of 10 s


async def serve_stdio(server: MCPServer) -> None:
    """Serve one client until it closes stdin, or a signal ends the process."""
    # A thread waits for stdin, and Python's own handler would wait for that thread. There is nothing to clean up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    await server.run_stdio_async()


class _AnnouncingServer(uvicorn.Server):
    """A server that prints its URL to stderr once it responds; a signal before that would interrupt its start."""

    async def main_loop(self) -> None:
        for server in self.servers:
            for listener in server.sockets:
                host, port = listener.getsockname()[:2]
                url = f"http://{f'[{host}]' if ':' in host else host}:{port}{MCP_PATH}"
                say(url)
        await super().main_loop()


async def serve_http(server: MCPServer, listener: socket.socket, hosts: Sequence[str] = ()) -> None:
    """Serve clients at /mcp until SIGTERM or SIGINT. Requests in progress are completed.

    Args:
        server: The MCP server.
        listener: A listening socket.
        hosts: Host names that requests may be addressed to, in addition to those of loopback.
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
    # uvicorn re-raises the signal that stopped it, which would make a clean end look like a kill.
    signal.signal(signal.SIGTERM, _ignore)
    await _AnnouncingServer(config).serve(sockets=[listener])


def make_app(server: MCPServer, hosts: Sequence[str] = ()) -> Starlette:
    """Return the ASGI application with /mcp, and /livez for probes.

    Requests do not share sessions, so any replica can handle any request.

    Args:
        server: The MCP server.
        hosts: Host names that requests may be addressed to, in addition to those of loopback. Requests to another host
            (421), or from a page of another origin (403), are refused. Otherwise a web page could reach the server by
            DNS rebinding.
    """

    async def livez(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def no_stream(_: Request) -> Response:
        return PlainTextResponse("POST only: this server sends no unsolicited messages\n", 405, {"Allow": "POST"})

    # There is no /readyz: if the service is down, the tools still say so, while a refused connection would not.
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
    # Before the SDK's route, which would keep a stream open that is never used.
    app.router.routes.insert(0, Route(MCP_PATH, no_stream, methods=["GET"]))
    return app


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 selects a free port.

    Raises:
        OSError: If the address cannot be used.
    """
    if ":" not in host:
        return socket.create_server((host, port))
    both = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=both)


def _ignore(_: int, __: FrameType | None) -> None:
    pass
