"""What can go wrong with a request, as its caller sees it: {"error": {"code", "message", "request_id"}} (docs/api.md).

ApiError
├── BadRequest         400 bad_request
├── Unauthorized       401 unauthorized, with WWW-Authenticate
├── Forbidden          403 forbidden
├── NotFound           404 not_found
├── ReloadFailed       409 reload_failed
├── TooLarge           413 too_large
├── Invalid            422 invalid
├── Overloaded         429 overloaded, with Retry-After
├── RateLimited        429 rate_limited, with Retry-After
├── HeadersTooLarge    431 headers_too_large
├── ClientGone         499 client_gone, in the log and the metrics: nobody is there to read it
├── NotReady           503 not_ready
└── DeadlineExceeded   504 deadline_exceeded

400 bad_json, 404 not_found for a path and 405 method_not_allowed come from the framework, 500 internal from anything
else. What is refused before it is a request, 408 request_timeout and 503 overloaded, is in
service/process/connection.py; what is no HTTP at all is answered 400 by uvicorn, in plain text.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.types import Scope

from taugate.service.api.json_reply import json_reply


class ApiError(Exception):
    """An error with a status, a stable code and a message for the caller."""

    status: ClassVar[int]
    code: ClassVar[str]
    headers: Mapping[str, str] = {}


class BadRequest(ApiError):
    """HTTP whose meaning depends on who reads it."""

    status, code, headers = 400, "bad_request", {"Connection": "close"}


class Unauthorized(ApiError):
    """No key, or none that is known; both ways to send one are told by the message, one by the header."""

    status, code, headers = 401, "unauthorized", {"WWW-Authenticate": "Bearer"}


class Forbidden(ApiError):
    """A key that is known and has not the scope."""

    status, code = 403, "forbidden"


class NotFound(ApiError):
    """Something that a request names is not there."""

    status, code = 404, "not_found"


class ReloadFailed(ApiError):
    """The current release cannot be put in the place of the one in service."""

    status, code = 409, "reload_failed"


class TooLarge(ApiError):
    """More than a limit allows."""

    status, code = 413, "too_large"


class Invalid(ApiError):
    """Well-formed JSON that asks for something that cannot be done."""

    status, code = 422, "invalid"


class HeadersTooLarge(ApiError):
    """A head that is longer, or has more headers, than is read."""

    status, code, headers = 431, "headers_too_large", {"Connection": "close"}


class Overloaded(ApiError):
    """The queue is full. A second is the shortest wait that Retry-After can say, and many queue lengths."""

    status, code, headers = 429, "overloaded", {"Retry-After": "1"}


class RateLimited(ApiError):
    """More queries than a key may ask for; seconds: until the next one may."""

    status, code = 429, "rate_limited"

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.headers = {"Retry-After": str(max(1, math.ceil(seconds)))}


class ClientGone(ApiError):
    """The caller closed the connection; the status is nginx's for it."""

    status, code = 499, "client_gone"


class NotReady(ApiError):
    """No release is loaded yet, or the service is shutting down."""

    status, code = 503, "not_ready"


class DeadlineExceeded(ApiError):
    """The answer took longer than TAUGATE_DEADLINE_MS."""

    status, code = 504, "deadline_exceeded"


_MOST_DETAILS = 3  # of a body with many faults: enough to mend it, never as long as the body
_LONGEST_NAME, _LONGEST_PATH = 40, 100

# What the framework, or a body read for it, answers by status alone.
_FRAMEWORK_CODES = {400: "bad_json", 404: "not_found", 405: "method_not_allowed", 413: TooLarge.code}


def error_body(code: str, message: str, request_id: str) -> dict[str, Any]:
    """The one shape of an error."""
    return {"error": {"code": code, "message": message, "request_id": request_id}}


def error_reply(scope: Scope, error: ApiError) -> Response:
    """The reply to a request that is refused before it reaches a handler."""
    return json_reply(error_body(error.code, str(error), scope["state"]["request_id"]), error.status, error.headers)


def install_handlers(app: FastAPI) -> None:
    """Answer every error of the framework and of our own in the one shape."""
    app.add_exception_handler(ApiError, _api_error)  # type: ignore[arg-type]  # starlette types handlers by Exception
    app.add_exception_handler(RequestValidationError, _validation_error)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, _http_error)  # type: ignore[arg-type]


def _reply(
    request: Request, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    body = error_body(code, message, request.scope["state"]["request_id"])
    return json_reply(body, status, headers)


async def _api_error(request: Request, error: ApiError) -> Response:
    return error_reply(request.scope, error)


async def _validation_error(request: Request, error: RequestValidationError) -> Response:
    errors = error.errors()
    if errors[0]["type"] == TooLarge.code:
        return _reply(request, TooLarge.status, TooLarge.code, _explain(errors))
    if any(detail["type"] == "json_invalid" for detail in errors):
        return _reply(request, 400, "bad_json", f"the body is not JSON: {errors[0]['ctx']['error']}")
    return _reply(request, 422, "invalid", _explain(errors))


def _explain(errors: Sequence[Mapping[str, Any]]) -> str:
    """Name the field, but never repeat its value: it may be a query's text."""
    parts = (f"{_field(detail['loc'])}: {detail['msg']}" for detail in errors[:_MOST_DETAILS])
    return "; ".join(parts)


def _field(location: Sequence[object]) -> str:
    """Path of a field below the body. Unknown names are the client's own words, so they are cut short."""
    names = (str(name) for name in location[1:])
    return ".".join(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in names) or "body"


def no_such_path(path: str) -> str:
    """What is said of a path that is none, which may be of any length."""
    return f"there is no {path[:_LONGEST_PATH]}; /openapi.json lists what there is"


async def _http_error(request: Request, error: HTTPException) -> Response:
    code = _FRAMEWORK_CODES.get(error.status_code, Invalid.code)
    messages = {
        400: "the body cannot be read as JSON in UTF-8",
        404: no_such_path(request.url.path),
        405: f"{request.url.path} does not take {request.method}",
    }
    return _reply(request, error.status_code, code, messages.get(error.status_code, error.detail), error.headers)
