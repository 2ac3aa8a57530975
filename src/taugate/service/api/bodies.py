"""Request bodies: how many bytes of them may be in memory, and how their JSON is read.

`BodyLimits` counts the bytes. `add_json_route` makes a POST route that FastAPI describes, and whose body pydantic alone
reads: FastAPI's own handler resolves dependencies for every request, and parses a body before it validates it. These
routes have no dependencies, and pydantic validates JSON while it parses it.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route, request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taugate.service.access.authorization import BATCH_PATH, PATH_RULES
from taugate.service.access.keys import ApiKey
from taugate.service.api.connections import CONNECTION
from taugate.service.api.openapi import operation_id
from taugate.service.api.replies import error_reply
from taugate.service.api.request_context import request_headers, request_key
from taugate.service.errors import ClientGone, Invalid, Overloaded, TooLarge
from taugate.service.settings import Settings

Body = TypeVar("Body", bound=BaseModel)
Endpoint = Callable[[Request, Body], Awaitable[Response]]

# Largest bodies in memory at once, 64 MiB by default: one of the usual size is a hundred bytes, and thousands of
# clients that each send most of a large one must not use memory up.
_MAX_LARGE_BODIES = 64
# Of them, those of one key: it takes eight keys to keep the others out.
_MAX_LARGE_BODIES_PER_KEY = 8
# Batches that one key may have under way, 8 by default: twice as many full ones as the queue takes. One whose replies
# are all known waits in no queue, and takes 1 ms of the event loop, or 18 where each reply has a hundred documents.
_QUERIES_PER_BATCH = 32
# To describe each takes a microsecond and some 300 bytes: a body of 1 MiB that is made for it has a hundred thousand.
_MAX_DESCRIBED_FAULTS = 10


class BodyLimits:
    """ASGI middleware that counts the bytes of bodies as they come, and believes no Content-Length.

    What is over a limit is refused before it is in memory, or before it is read. A connection whose request gets past
    Guard and reaches this middleware keeps its place among the connections.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        """Wrap an application.

        Args:
            app: What is called within the limits.
            settings: Have the limits of a body, of a batch, and of the queue.
        """
        self._app = app
        self._max_bytes, self._max_batch_bytes = settings.requests.max_body_bytes, settings.requests.max_batch_bytes
        self._max_total = _MAX_LARGE_BODIES * max(self._max_bytes, self._max_batch_bytes)
        self._max_total_per_key = self._max_total * _MAX_LARGE_BODIES_PER_KEY // _MAX_LARGE_BODIES
        self._total = 0  # bytes of all bodies in memory
        self._total_per_key: Counter[str] = Counter()
        self._max_batches = max(1, settings.admission.queue_limit // _QUERIES_PER_BATCH)
        self._batches: Counter[str | None] = Counter()  # under way, by the name of the key; None: of all without one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application within the limits.

        Args:
            scope: As ASGI has them; what is not HTTP passes through.
            receive: As ASGI has them; what is not HTTP passes through.
            send: As ASGI has them; what is not HTTP passes through.

        Raises:
            Overloaded: , and Starlette's HTTPException 413, when the application receives more than it may.
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


def add_json_route(
    app: FastAPI,
    path: str,
    model: type[Body],
    endpoint: Endpoint[Body],
    charge: Callable[[ApiKey | None], Awaitable[None]],
    **description: Any,  # noqa: ANN401 (whatever FastAPI's APIRoute takes)
) -> None:
    """Answer POST requests to a path.

    Args:
        app: Gets the route.
        path: Without parameters.
        model: Of the body.
        endpoint: Answers a request whose body was read.
        charge: Takes a request off the rate of its key before its body is read, or raises RateLimited.
        description: Further arguments of FastAPI's APIRoute, such as `responses`, for openapi.json.
    """

    async def serve(request: Request) -> Response:
        request.scope["route"] = route
        await charge(request_key(request.scope))  # a body that is refused takes as long to read as one that is answered
        return await endpoint(request, await _read_body(request, model))

    route = _JsonRoute(path, endpoint, serve, description)
    app.router.routes.append(route)


class _JsonRoute(APIRoute):
    """Described by the signature of its endpoint, as FastAPI describes any route, and served by `serve`.

    Only a request that it answers counts as one of this route in logs and metrics; FastAPI's `matches` also counts one
    with another method.
    """

    matches, handle = Route.matches, Route.handle

    def __init__(
        self,
        path: str,
        endpoint: Endpoint[Any],
        serve: Callable[[Request], Coroutine[Any, Any, Response]],
        description: dict[str, Any],
    ) -> None:
        super().__init__(
            path,
            endpoint,
            methods=["POST"],
            response_model=None,
            generate_unique_id_function=operation_id,
            **description,
        )
        self.app = request_response(serve)


async def _read_body(request: Request, model: type[Body]) -> Body:
    """Read and validate the body.

    Raises:
        RequestValidationError: Where it is not as the model has it, Invalid where it is not declared as JSON or has too
            many faults to list, and ClientGone where the connection closes first.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Invalid("the body is not declared as JSON: send the header Content-Type: application/json")
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        if error.error_count() > _MAX_DESCRIBED_FAULTS:
            raise Invalid(
                f"the body has {error.error_count()} faults, too many to list; see /openapi.json for its form"
            ) from error
        faults = error.errors(include_url=False)
        raise RequestValidationError([fault | {"loc": ("body", *fault["loc"])} for fault in faults]) from error
    except ClientDisconnect as error:
        raise ClientGone("the connection was closed before the whole body was there") from error
