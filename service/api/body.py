"""What is in hand at once: bodies that are in memory, each and all of them, and the batches of one key."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taugate.service.access.access import BATCH, RULES
from taugate.service.api.connections import CONNECTION
from taugate.service.errors import ClientGone, Invalid, Overloaded, TooLarge, error_reply
from taugate.service.settings import Settings

Body = TypeVar("Body", bound=BaseModel)

# To describe each takes a microsecond and some 300 bytes: a body of 1 MiB that is made for it has a hundred thousand.
_MOST_FAULTS = 10


def add_json_route(
    app: FastAPI,
    path: str,
    model: type[Body],
    endpoint: Callable[[Request, Body], Awaitable[Response]],
    charge: Callable[[Scope], Awaitable[None]],
    **description: Any,  # noqa: ANN401 (whatever FastAPI takes)
) -> None:
    """Answer POST requests to a path; `endpoint` and `description` are what FastAPI is told of it.

    charge: takes a request off its key's rate before its body is read, or refuses it.
    """

    async def serve(request: Request) -> Response:
        request.scope["route"] = route
        await charge(request.scope)  # a body that is refused takes as long to read as one that is answered
        return await endpoint(request, await _read(request, model))

    route = Route(path, serve, methods=["POST"])
    app.router.routes.append(route)  # in front of FastAPI's, which is there to be described
    app.add_api_route(path, endpoint, methods=["POST"], response_model=None, **description)


async def _read(request: Request, model: type[Body]) -> Body:
    """The body. Raises RequestValidationError, Invalid where it is not said to be JSON, ClientGone."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Invalid("the body is not declared as JSON: send the header Content-Type: application/json")
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        if error.error_count() > _MOST_FAULTS:
            raise Invalid(
                f"the body has {error.error_count()} faults, too many to list; see /openapi.json for its form"
            ) from error
        details = error.errors(include_url=False)
        raise RequestValidationError([each | {"loc": ("body", *each["loc"])} for each in details]) from error
    except ClientDisconnect as error:
        raise ClientGone("the connection was closed before the whole body was there") from error


# Largest bodies in memory at once, 64 MiB by default: one of the usual size is a hundred bytes, and thousands of
# clients that each send most of a large one must not use memory up.
_MOST_AT_ONCE = 64
# Of them, those of one key: it takes eight keys to keep the others out.
_MOST_OF_A_KEY = 8
# Batches that one key may have in hand, 8 by default: twice as many full ones as the queue takes. One whose replies are
# all known waits in no queue, and takes 1 ms of the event loop, or 18 where each reply has a hundred documents.
_QUERIES_FOR_A_BATCH = 32


class InHand:
    """Pure ASGI middleware: counts bytes as they come, and believes no Content-Length.

    What is over a limit is refused before it is in memory, or before it is read. A request that is let through earns
    its connection a place.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._limit, self._limit_of_a_batch = settings.requests.max_body_bytes, settings.requests.max_batch_bytes
        self._most = _MOST_AT_ONCE * max(self._limit, self._limit_of_a_batch)
        self._most_of_a_key = self._most * _MOST_OF_A_KEY // _MOST_AT_ONCE
        self._held: Counter[str | None] = Counter()  # bytes, by the name of the key; None: of all
        self._most_batches = max(1, settings.admission.queue_limit // _QUERIES_FOR_A_BATCH)
        self._batches: Counter[str | None] = Counter()  # in hand, by the name of the key; None: of all who have none

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        of_a_batch = scope["path"] == BATCH
        limit = self._limit_of_a_batch if of_a_batch else self._limit
        declared = dict(scope["headers"]).get(b"content-length", b"")
        too_large = declared.isdigit() and int(declared) > limit
        key = scope["state"]["key"].name if "key" in scope["state"] else None
        if of_a_batch and self._batches[key] >= self._most_batches:
            error = Overloaded(f"this key has {self._most_batches} batches under way; try again later")
            scope["route"] = RULES[BATCH]  # counted as what it asked for
            await error_reply(scope, error)(scope, receive, send)
            return
        seen = 0

        async def receive_limited() -> Message:
            nonlocal seen
            message = await receive()
            came = len(message.get("body", b""))
            seen += came
            self._hold(key, came)
            if too_large or seen > limit:
                setting = "TAUGATE_MAX_BATCH_BYTES" if of_a_batch else "TAUGATE_MAX_BODY_BYTES"
                # The framework turns any other exception into "400, body not JSON" while it reads a body.
                raise HTTPException(TooLarge.status, f"the body is over {limit} bytes ({setting})")
            if self._held[None] > self._most or (key is not None and self._held[key] > self._most_of_a_key):
                whose = "" if self._held[None] > self._most else f" of the key {key}"
                raise Overloaded(f"too many large bodies{whose} are being received; try again later")
            return message

        connection = scope["state"].get(CONNECTION)
        if connection is not None and scope["state"].get("admitted"):
            connection.admitted()
        self._batches[key] += of_a_batch
        try:
            if of_a_batch:
                await asyncio.sleep(0)  # so that those that came together are counted before one of them is answered
            await self._app(scope, receive_limited, send)
        finally:
            self._batches[key] -= of_a_batch
            self._hold(key, -seen)

    def _hold(self, key: str | None, came: int) -> None:
        self._held[None] += came
        if key is not None:
            self._held[key] += came
