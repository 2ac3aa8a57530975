"""Refuse a request body before more of it than the limit is in memory."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import TooLarge


class BodyLimit:
    """Pure ASGI middleware: counts bytes as they come, and believes no Content-Length."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"")
        too_large = declared.isdigit() and int(declared) > self._limit
        seen = 0

        async def receive_limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if too_large or seen > self._limit:
                # The framework turns any other exception into "400, body not JSON" while it reads a body.
                raise HTTPException(TooLarge.status, f"the body is over {self._limit} bytes (TAUGATE_MAX_BODY_BYTES)")
            return message

        await self._app(scope, receive_limited, send)
