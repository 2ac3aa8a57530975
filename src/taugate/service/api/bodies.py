"""Request bodies: limits on the bytes in memory, and the parsing of JSON.

`BodyLimits` counts the bytes. `add_json_route` makes a POST route that FastAPI describes, but whose body pydantic reads
directly: FastAPI's own handler resolves dependencies for every request, and parses a body before validating it. These
routes have no dependencies, and pydantic validates JSON while parsing it.
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
from taugate.service.api.openapi import operation_id
from taugate.service.api.replies import error_reply
from taugate.service.api.request_context import request_headers, request_key
from taugate.service.errors import ClientGone, Invalid, Overloaded, TooLarge
from taugate.service.http.connection import current_connection
from taugate.service.settings import Settings

Body = TypeVar("Body", bound=BaseModel)
Endpoint = Callable[[Request, Body], Awaitable[Response]]

# Number of bodies of the largest size that may be in memory at once, 64 MiB by default. A usual body has a hundred
# bytes; the limit is for thousands of clients that each send most of a large one.
_MAX_LARGE_BODIES = 64
# The same per key, so that it takes eight keys to exhaust the limit for all.
_MAX_LARGE_BODIES_PER_KEY = 8
# The queue limit divided by this is the number of batches per key in progress, 8 by default: twice as many full ones as
# fit into the queue. A fully cached batch does not use the queue; it takes 1 ms of the event loop, or 18 ms if each
# reply has a hundred documents.
_QUERIES_PER_BATCH = 32
# Describing an error takes a microsecond and some 300 bytes, and a crafted body of 1 MiB has a hundred thousand.
_MAX_DESCRIBED_FAULTS = 10


class BodyLimits:
    """ASGI middleware that limits the bytes of request bodies, counted as they arrive, whatever Content-Length says.

    A body over a limit is refused before it is read, or before it is in memory. A connection whose request has passed
    Guard and reaches this middleware cannot be closed in favour of new connections.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._max_bytes, self._max_batch_bytes = settings.requests.max_body_bytes, settings.requests.max_batch_bytes
        self._max_total = _MAX_LARGE_BODIES * max(self._max_bytes, self._max_batch_bytes)
        self._max_total_per_key = self._max_total * _MAX_LARGE_BODIES_PER_KEY // _MAX_LARGE_BODIES
        self._total = 0  # bytes of all bodies in memory
        self._total_per_key: Counter[str] = Counter()
        self._max_batches = max(1, settings.admission.queue_limit // _QUERIES_PER_BATCH)
        self._batches: Counter[str | None] = Counter()  # in progress, by key name; None for requests without a key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application with a `receive` that enforces the limits. Scopes other than HTTP pass through.

        That `receive` raises Overloaded if too much is in memory, and Starlette's HTTPException 413 if the body is too
        large.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        key = request_key(scope)
        name = None if key is None else key.name
        is_batch = scope["path"] == BATCH_PATH
        if is_batch and self._batches[name] >= self._max_batches:
            error = Overloaded(f"this key has {self._max_batches} batches in progress; try again later")
            scope["route"] = PATH_RULES[BATCH_PATH]  # logs and metrics count it under the requested route
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
                # Any other exception while a body is read would become FastAPI's "400, body not JSON".
                raise HTTPException(TooLarge.status, f"the body is over {limit} bytes ({setting})")
            self._check_totals(name)
            return message

        connection = current_connection()
        if connection is not None and scope["state"].get("authorized"):
            connection.request_authorized()
        self._batches[name] += is_batch
        try:
            if is_batch:
                await asyncio.sleep(0)  # so that simultaneous batches are all counted before the first one runs
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
        """Count bytes that were received (positive) or freed (negative)."""
        self._total += size
        if name is not None:
            self._total_per_key[name] += size


def add_json_route(
    app: FastAPI,
    path: str,
    model: type[Body],
    endpoint: Endpoint[Body],
    charge: Callable[[ApiKey | None], Awaitable[None]],
    **description: Any,  # noqa: ANN401 (any argument of FastAPI's APIRoute)
) -> None:
    """Add a POST route with a JSON body.

    Args:
        app: Application to add the route to.
        path: Path of the route, with its parameters if it has any.
        model: Model of the body.
        endpoint: Handler of a request and its validated body.
        charge: Charges the rate of the request's key before the body is read, or raises RateLimited.
        description: Further arguments of FastAPI's APIRoute for openapi.json, such as `responses`.
    """

    async def serve(request: Request) -> Response:
        request.scope["route"] = route
        await charge(
            request_key(request.scope)
        )  # before the body is read, because an invalid one takes as long to read
        return await endpoint(request, await _read_body(request, model))

    route = _JsonRoute(path, endpoint, serve, description)
    app.router.routes.append(route)


class _JsonRoute(APIRoute):
    """A route that FastAPI describes by the signature of its endpoint, but that `serve` handles.

    Starlette's `matches` is used, so that requests with another method do not count under this route in logs and
    metrics.
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
        RequestValidationError: If the body does not fit the model.
        Invalid: If the body is not declared as JSON, or has too many errors to list.
        ClientGone: If the connection closes before the whole body was received.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Invalid("the body is not declared as JSON: send the header Content-Type: application/json")
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        if error.error_count() > _MAX_DESCRIBED_FAULTS:
            raise Invalid(
                f"the body has {error.error_count()} errors, too many to list; see /openapi.json for its schema"
            ) from error
        faults = error.errors(include_url=False)
        raise RequestValidationError([fault | {"loc": ("body", *fault["loc"])} for fault in faults]) from error
    except ClientDisconnect as error:
        raise ClientGone("the connection was closed before the whole body was received") from error
