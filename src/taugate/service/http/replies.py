"""Replies of handlers, and error replies: {"error": {"code", "message", "request_id"}}.

Replies are built from trusted values, so FastAPI does not validate them again.
"""

from collections.abc import Mapping, Sequence
from email.utils import formatdate
from http import HTTPStatus

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from taugate.service.errors import ApiError
from taugate.storage.files import Json

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


def json_reply(value: Mapping[str, Json], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a reply with a JSON object, which orjson must be able to serialize."""
    return EncodedJsonResponse(orjson.dumps(value), status, headers)


def model_reply(value: BaseModel, *, exclude_none: bool = False) -> Response:
    """Return a reply with the JSON of a model, without the fields that are None if `exclude_none` is set."""
    return EncodedJsonResponse(value.model_dump_json(exclude_none=exclude_none))


def error_body(code: str, message: str, request_id: str) -> dict[str, Json]:
    """Return the body of an error reply, see ErrorDetail."""
    return {"error": {"code": code, "message": message, "request_id": request_id}}


def raw_reply(error: ApiError, request_id: str) -> bytes:
    """Return a whole HTTP/1.1 error reply that closes its connection, to bytes that are no whole request."""
    body = orjson.dumps(error_body(error.code, str(error), request_id))
    headers = [
        (b"date", formatdate(usegmt=True).encode()),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *((name.lower().encode(), value.encode()) for name, value in error.headers.items()),
        *SECURITY_HEADERS,
        (b"x-request-id", request_id.encode()),
    ]
    return reply_head(error.status, headers) + body


def reply_head(status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the status line and the headers of a reply; names and values come from the service, without line ends."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), *(b"%b: %b" % header for header in headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n"
