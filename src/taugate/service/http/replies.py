"""Replies of handlers, and error replies: {"error": {"code", "message", "request_id"}}.

Replies are built from trusted values, so FastAPI does not validate them again.
"""

import hmac
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from taugate.retrieval.documents.filters import Filter
from taugate.service.errors import ApiError
from taugate.storage.files import Json

_ACCEPTED_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")  # safe in a log line and in a header
_IDS_AT_ONCE = 256
_HALF_DIGITS = 16  # 64 bits: at a million replies an hour, two collide once in 4,000 years
_OWN_SECRET = os.urandom(32).hex()  # of ids that only this process has to recognize

SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


def _generate_ids() -> Iterator[str]:
    # Random bytes for many ids are read at a time: each call releases the interpreter lock, and a busy process has to
    # wait to get it back.
    while True:
        digits = os.urandom(16 * _IDS_AT_ONCE).hex()
        yield from (digits[start : start + 32] for start in range(0, len(digits), 32))


_ids = _generate_ids()


def new_id() -> str:
    """Return a new random id of 128 bits, 32 hexadecimal digits."""
    return next(_ids)


def request_id(header: bytes) -> str:
    """Return the id that the header X-Request-ID proposes, or a new one if it is missing or unsafe."""
    return header.decode("ascii") if _ACCEPTED_ID.fullmatch(header) else new_id()


def reply_id(permitted: Filter, secret: str = _OWN_SECRET) -> str:
    """Return a new id for a reply, 32 hexadecimal digits.

    For a key with a filter, half of the id is random, and half is an HMAC of the random half and the filter. So every
    replica with the same list of keys can tell from the id alone whether a key may judge a reply. To a caller without
    the secret, which is the SHA-256 of the key in that list, an id says nothing about the filter, and one that was
    issued to another key is indistinguishable from an unknown one.
    """
    return new_id() if not permitted else _signed(new_id()[:_HALF_DIGITS], permitted, secret)


def may_judge(permitted: Filter, query_id: str, secrets: Iterable[str] = (_OWN_SECRET,)) -> bool:
    """Return whether a key may judge a reply: if the key has no filter, or the filter that the reply was made for.

    `secrets` are those of the keys with this filter.
    """
    digits = query_id[:_HALF_DIGITS]
    signed = (_signed(digits, permitted, secret) for secret in secrets)
    return not permitted or any(hmac.compare_digest(query_id.encode(), expected.encode()) for expected in signed)


def _signed(digits: str, permitted: Filter, secret: str) -> str:
    return digits + hmac.digest(secret.encode(), f"{digits}{permitted!r}".encode(), "sha256").hex()[:_HALF_DIGITS]


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


PROBLEM_TYPE: Final = b"application/problem+json"


def problem_reply(error: ApiError, request_id: str) -> Response:
    """Return an error as problem details (RFC 9457), for callers that accept them, with the code as an extension."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": str(error),
        "code": error.code,
        "request_id": request_id,
    }
    return Response(orjson.dumps(body), error.status, error.headers, PROBLEM_TYPE.decode())


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
