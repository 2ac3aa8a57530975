"""Refuse a request body before more of it than the limit is in memory, or more of all of them than can be carried."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Overloaded, TooLarge

# Largest bodies in memory at once, 64 MiB by default: one of the usual size is a hundred bytes, and thousands of
# clients that each send most of a large one must not use memory up.
_MOST_AT_ONCE = 64


class BodyLimit:
    """Pure ASGI middleware: counts bytes as they come, and believes no Content-Length."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._held = 0

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
            came = len(message.get("body", b""))
            seen += came
            self._held += came
            if too_large or seen > self._limit:
                # The framework turns any other exception into "400, body not JSON" while it reads a body.
                raise HTTPException(TooLarge.status, f"the body is over {self._limit} bytes (TAUGATE_MAX_BODY_BYTES)")
            if self._held > _MOST_AT_ONCE * self._limit:
                raise Overloaded("too many large bodies are being received; try again later")
            return message

        try:
            await self._app(scope, receive_limited, send)
        finally:
            self._held -= seen
