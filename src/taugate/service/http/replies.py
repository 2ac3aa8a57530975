"""Replies of handlers and error replies, which all have the form {"error": {"code", "message", "request_id"}}.

Replies are built from trusted values, so FastAPI does not validate them again.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel
from starlette.responses import Response

SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class ErrorDetail(BaseModel):
    """An error: a stable code, a readable message, and the request id, which is also in the log."""

    code: str
    message: str
    request_id: str


class ErrorResponse(BaseModel):
    """The body of every error."""

    error: ErrorDetail


class EncodedJsonResponse(Response):
    """A reply whose body is already encoded JSON, in UTF-8."""

    media_type = "application/json"


def json_reply(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a reply with a JSON object, which orjson must be able to serialize."""
    return EncodedJsonResponse(orjson.dumps(value), status, headers)


def model_reply(value: BaseModel, *, exclude_none: bool = False) -> Response:
    """Return a reply with the JSON of a model, without the fields that are None if `exclude_none` is set."""
    return EncodedJsonResponse(value.model_dump_json(exclude_none=exclude_none))


def error_body(code: str, message: str, request_id: str) -> dict[str, Any]:
    """Return the body of an error reply, see ErrorDetail."""
    return {"error": {"code": code, "message": message, "request_id": request_id}}
