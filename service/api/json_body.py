"""POST routes whose JSON body pydantic reads at once, on Starlette's own kind of route.

FastAPI describes them in openapi.json. It would serve them as well, but what it does around a handler is most of a
known reply: a bare endpoint of it has no more replies/s for one client (docs/benchmarks/serving.md, "Repeated
queries").
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import Scope

from taugate.service.errors import ClientGone, Invalid

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
