"""HEAD wherever GET is: `wget --spider`, HAProxy's checks and uptime monitors use it (RFC 9110, section 9.3.2)."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """ASGI middleware that answers HEAD with the status and headers of GET, Content-Length included, and no body.

    Routes know GET alone, so that openapi.json describes each operation once.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application.

        Args:
            app: Is called for every request, with GET in place of HEAD.
        """
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, and leave out the body of its reply to HEAD.

        Args:
            scope: As ASGI has them; any other method, and what is not HTTP, passes through.
            receive: As ASGI has them; any other method, and what is not HTTP, passes through.
            send: As ASGI has them; any other method, and what is not HTTP, passes through.
        """
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
