"""HEAD for every GET path: `wget --spider`, HAProxy's checks and uptime monitors use it (RFC 9110, section 9.3.2)."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """ASGI middleware that replies to HEAD with the status and headers of GET, including Content-Length, and no body.

    Routes only handle GET, so that openapi.json describes each operation once.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application, which gets GET requests in place of HEAD requests."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, and omit the body of its reply to HEAD. Other requests pass through."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        get = {**scope, "method": "GET"}

        async def send_without_body(message: Message) -> None:
            await send(message if message["type"] != "http.response.body" else {**message, "body": b""})

        try:
            await self._app(get, receive, send_without_body)
        finally:
            if "route" in get:  # under which logs and metrics count the request
                scope["route"] = get["route"]
