"""ASGI's side of a connection: tells it how far each request is."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taugate.service.api.table import CONNECTION


class Accounting:
    """Pure ASGI middleware, for requests that came over a `Connection`; the outermost, so that no reply goes unseen."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        connection = scope.get("state", {}).get(CONNECTION)
        if scope["type"] != "http" or connection is None:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        connection.asked(whole=b"transfer-encoding" not in headers and headers.get(b"content-length", b"0") == b"0")

        async def receive_and_tell() -> Message:
            message = await receive()
            if not message.get("more_body"):
                connection.received()
            return message

        async def send_and_tell(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                connection.replied()

        await self._app(scope, receive_and_tell, send_and_tell)
