"""Limits on request bodies in memory: of each, of all together, of those of one key; and on batches of one key."""

import asyncio
from collections import Counter

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taugate.service.access.authorization import BATCH_PATH, PATH_RULES
from taugate.service.api.connections import CONNECTION
from taugate.service.api.replies import error_reply
from taugate.service.api.request_context import request_headers, request_key
from taugate.service.errors import Overloaded, TooLarge
from taugate.service.settings import Settings

# Largest bodies in memory at once, 64 MiB by default: one of the usual size is a hundred bytes, and thousands of
# clients that each send most of a large one must not use memory up.
_MAX_LARGE_BODIES = 64
# Of them, those of one key: it takes eight keys to keep the others out.
_MAX_LARGE_BODIES_PER_KEY = 8
# Batches that one key may have under way, 8 by default: twice as many full ones as the queue takes. One whose replies
# are all known waits in no queue, and takes 1 ms of the event loop, or 18 where each reply has a hundred documents.
_QUERIES_PER_BATCH = 32


class BodyLimits:
    """ASGI middleware that counts the bytes of bodies as they come, and believes no Content-Length.

    What is over a limit is refused before it is in memory, or before it is read. A connection whose request gets past
    Guard and reaches this middleware keeps its place among the connections.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        """Wrap an application.

        app: what is called within the limits; settings: have the limits of a body, of a batch, and of the queue.
        """
        self._app = app
        self._max_bytes, self._max_batch_bytes = settings.max_body_bytes, settings.max_batch_bytes
        self._max_total = _MAX_LARGE_BODIES * max(self._max_bytes, self._max_batch_bytes)
        self._max_total_per_key = self._max_total * _MAX_LARGE_BODIES_PER_KEY // _MAX_LARGE_BODIES
        self._total = 0  # bytes of all bodies in memory
        self._total_per_key: Counter[str] = Counter()
        self._max_batches = max(1, settings.queue_limit // _QUERIES_PER_BATCH)
        self._batches: Counter[str | None] = Counter()  # under way, by the name of the key; None: of all without one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application within the limits.

        scope, receive, send: as ASGI has them; what is not HTTP passes through. Raises Overloaded, and Starlette's
        HTTPException 413, when the application receives more than it may.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        key = request_key(scope)
        name = None if key is None else key.name
        is_batch = scope["path"] == BATCH_PATH
        if is_batch and self._batches[name] >= self._max_batches:
            error = Overloaded(f"this key has {self._max_batches} batches under way; try again later")
            scope["route"] = PATH_RULES[BATCH_PATH]  # logs and metrics count it as what it asked for
            await error_reply(scope, error)(scope, receive, send)
            return
        limit = self._max_batch_bytes if is_batch else self._max_bytes
        declared = request_headers(scope).get(b"content-length", b"")
        too_large = declared.isdigit() and int(declared) > limit
        received = 0

        async def receive_within_limits() -> Message:
            nonlocal received
            message = await receive()
            size = len(message.get("body", b""))
            received += size
            self._count(name, size)
            if too_large or received > limit:
                setting = "TAUGATE_MAX_BATCH_BYTES" if is_batch else "TAUGATE_MAX_BODY_BYTES"
                # FastAPI turns any other exception into "400, body not JSON" while it reads a body.
                raise HTTPException(TooLarge.status, f"the body is over {limit} bytes ({setting})")
            self._check_totals(name)
            return message

        connection = scope["state"].get(CONNECTION)
        if connection is not None and scope["state"].get("admitted"):
            connection.admitted()
        self._batches[name] += is_batch
        try:
            if is_batch:
                await asyncio.sleep(0)  # so that those that came together are counted before one of them is answered
            await self._app(scope, receive_within_limits, send)
        finally:
            self._batches[name] -= is_batch
            self._count(name, -received)

    def _check_totals(self, name: str | None) -> None:
        if self._total > self._max_total:
            raise Overloaded("too many large bodies are being received; try again later")
        if name is not None and self._total_per_key[name] > self._max_total_per_key:
            raise Overloaded(f"too many large bodies of the key {name} are being received; try again later")

    def _count(self, name: str | None, size: int) -> None:
        """Count bytes that came (positive) or that are let go of (negative)."""
        self._total += size
        if name is not None:
            self._total_per_key[name] += size
