"""JSON replies of handlers, and error replies, which all have the form {"error": {"code", "message", "request_id"}}.

Replies are built from trusted values, so FastAPI does not validate them again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from taugate.errors import EngineUnavailable
from taugate.service.access.authorization import DIFY_PATH
from taugate.service.errors import ApiError, EngineAway, Forbidden, Invalid, TooLarge, Unauthorized

_MAX_LISTED_FAULTS = 3  # enough to correct a body, while the message remains shorter than the body
_MAX_NAME_CHARS, _MAX_PATH_CHARS = 40, 100

# Dify's error codes. When Dify tests a new address, it takes 401 as proof of a working key and 404 as a wrong address,
# although it then requests a made-up knowledge base (langgenius/dify#39410).
_DIFY_NO_KEY, _DIFY_BAD_KEY, _DIFY_NO_KNOWLEDGE = 1001, 1002, 2001
_DIFY_ERRORS = {401: Forbidden, 404: Invalid}  # the error that is sent instead, by status

# Error codes for the framework's HTTPException, by status. BodyLimits raises it for 413.
_FRAMEWORK_CODES = {400: "bad_json", 404: "not_found", 405: "method_not_allowed", 413: TooLarge.code}


class EncodedJsonResponse(Response):
    """A reply whose body is already encoded JSON, in UTF-8."""

    media_type = "application/json"


def json_reply(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a reply with a JSON object, which orjson must be able to serialize."""
    return EncodedJsonResponse(orjson.dumps(value), status, headers)


def error_body(code: str, message: str, request_id: str) -> dict[str, Any]:
    """Return the body of an error reply.

    Args:
        code: Stable name of the error.
        message: Readable description.
        request_id: Id of the request, also in the log.
    """
    return {"error": {"code": code, "message": message, "request_id": request_id}}


def error_reply(scope: Scope, error: ApiError) -> Response:
    """Return the reply for an error.

    Args:
        scope: ASGI scope of the request. Its state holds the request id.
        error: The error.
    """
    return _reply(scope, error.status, error.code, str(error), error.headers)


def no_such_path(path: str) -> str:
    """Return the error message for an unknown path, which is truncated to 100 characters."""
    return f"there is no path {path[:_MAX_PATH_CHARS]}; /openapi.json lists all paths"


def add_error_handlers(app: FastAPI) -> None:
    """Register handlers that give all errors, also those of the framework, the same form."""
    # Starlette types every handler as one of Exception, although it calls each with the type it was added for.
    app.add_exception_handler(ApiError, _reply_to_api_error)  # type: ignore[arg-type]
    app.add_exception_handler(EngineUnavailable, _reply_to_engine_away)
    app.add_exception_handler(RequestValidationError, _reply_to_invalid_body)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, _reply_to_framework_error)  # type: ignore[arg-type]


async def _reply_to_api_error(request: Request, error: ApiError) -> Response:
    return error_reply(request.scope, error)


async def _reply_to_engine_away(request: Request, error: Exception) -> Response:
    """Reply without the error's own message, which names hosts and is in the log."""
    return error_reply(request.scope, EngineAway())


async def _reply_to_invalid_body(request: Request, error: RequestValidationError) -> Response:
    faults = error.errors()
    if faults[0]["type"] == TooLarge.code:
        return _reply(request.scope, TooLarge.status, TooLarge.code, describe_faults(faults))
    if any(fault["type"] == "json_invalid" for fault in faults):
        return _reply(request.scope, 400, "bad_json", f"the body is not JSON: {faults[0]['ctx']['error']}")
    return _reply(request.scope, 422, "invalid", describe_faults(faults))


async def _reply_to_framework_error(request: Request, error: HTTPException) -> Response:
    code = _FRAMEWORK_CODES.get(error.status_code, Invalid.code)
    messages = {
        400: "the body cannot be read as JSON in UTF-8",
        404: no_such_path(request.url.path),
        405: f"{request.url.path} does not support {request.method}",
    }
    headers = dict(error.headers or {})
    if "Allow" in headers:
        headers["Allow"] = _with_head(headers["Allow"])
    return _reply(request.scope, error.status_code, code, messages.get(error.status_code, error.detail), headers)


def _with_head(allowed: str) -> str:
    """Add HEAD, which HeadAsGet supports for every GET path, to the methods of an Allow header."""
    methods = {method.strip() for method in allowed.split(",")}
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))


def _reply(scope: Scope, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    dify: dict[str, Any] = {}
    if scope["path"] == DIFY_PATH and "route" in scope:  # without a route this dialect is off, and 404 is correct
        dify = _dify_error(scope, status, message)
        if status in _DIFY_ERRORS:
            status, code = _DIFY_ERRORS[status].status, _DIFY_ERRORS[status].code
    body = error_body(code, message, scope["state"]["request_id"]) | dify
    return json_reply(body, status, headers)


def _dify_error(scope: Scope, status: int, message: str) -> dict[str, Any]:
    """Return the two error fields that Dify reads, with the codes of its External Knowledge API."""
    code = {401: _DIFY_BAD_KEY, 403: _DIFY_BAD_KEY, 404: _DIFY_NO_KNOWLEDGE}.get(status, status)
    if status == Unauthorized.status and not dict(scope["headers"]).get(b"authorization", b"").startswith(b"Bearer "):
        code = _DIFY_NO_KEY
    return {"error_code": code, "error_msg": message}


def describe_faults(faults: Sequence[Mapping[str, Any]]) -> str:
    """Name the first invalid fields of a body, without values, which may be the text of a query.

    Args:
        faults: Errors from pydantic, with `loc` and `msg`; `loc` begins with "body".
    """
    return "; ".join(f"{_field_path(fault['loc'])}: {fault['msg']}" for fault in faults[:_MAX_LISTED_FAULTS])


def _field_path(location: Sequence[object]) -> str:
    """Return a field's path below the body. Names are truncated, because the client may have made them up."""
    names = (str(name) for name in location[1:])
    shortened = (name if len(name) <= _MAX_NAME_CHARS else f"{name[:_MAX_NAME_CHARS]}…" for name in names)
    return ".".join(shortened) or "body"
