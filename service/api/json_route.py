"""A POST route that takes a JSON body: FastAPI describes it, and pydantic alone reads the body.

FastAPI's own handler resolves dependencies for every request, and parses a body before it validates it. These routes
have no dependencies, and pydantic validates JSON while it parses it.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Route, request_response
from starlette.types import Scope

from taugate.service.access.keys import ApiKey
from taugate.service.api.openapi import operation_id
from taugate.service.api.request_context import request_key
from taugate.service.errors import ClientGone, Invalid

Body = TypeVar("Body", bound=BaseModel)
Endpoint = Callable[[Request, Body], Awaitable[Response]]

# To describe each takes a microsecond and some 300 bytes: a body of 1 MiB that is made for it has a hundred thousand.
_MAX_DESCRIBED_FAULTS = 10


def add_json_route(
    app: FastAPI,
    path: str,
    model: type[Body],
    endpoint: Endpoint[Body],
    charge: Callable[[ApiKey | None], Awaitable[None]],
    **description: Any,  # noqa: ANN401 (whatever FastAPI's APIRoute takes)
) -> None:
    """Answer POST requests to a path.

    app: gets the route; path: without parameters; model: of the body; endpoint: answers a request whose body was read;
    charge: takes a request off the rate of its key before its body is read, or raises RateLimited;
    description: further arguments of FastAPI's APIRoute, such as `responses`, for openapi.json.
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

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return Route.matches(self, scope)


async def _read_body(request: Request, model: type[Body]) -> Body:
    """Read and validate the body.

    Raises RequestValidationError where it is not as the model has it, Invalid where it is not declared as JSON or has
    too many faults to list, and ClientGone where the connection closes first.
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
