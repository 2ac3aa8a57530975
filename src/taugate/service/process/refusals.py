"""Refusals of a connection before there is a request, as whole HTTP replies in bytes."""

from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

import orjson

from taugate.service.http.ids import new_id
from taugate.service.http.replies import SECURITY_HEADERS, error_body


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal of a connection.

    Attributes:
        reason: Label of the metric `taugate_refused_total`.
        status: HTTP status of the error reply.
        code: Stable code of the error reply.
        message: Message of the error reply.
    """

    reason: str
    status: HTTPStatus
    code: str
    message: str


TOO_SLOW = Refusal(
    "receive_timeout",
    HTTPStatus.REQUEST_TIMEOUT,
    "request_timeout",
    "the request was not received in time (TAUGATE_RECEIVE_SECONDS)",
)
TOO_MANY = Refusal(
    "connections",
    HTTPStatus.SERVICE_UNAVAILABLE,
    "overloaded",
    "too many connections are open (TAUGATE_MAX_CONNECTIONS); try again later",
)


def raw_reply(refusal: Refusal) -> bytes:
    """Return a whole HTTP/1.1 error reply that closes its connection."""
    request_id = new_id()
    body = orjson.dumps(error_body(refusal.code, refusal.message, request_id))
    headers = [
        (b"date", formatdate(usegmt=True).encode()),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        *SECURITY_HEADERS,
        (b"x-request-id", request_id.encode()),
    ]
    if refusal.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", b"1"))
    line = f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}\r\n".encode()
    return line + b"".join(b"%b: %b\r\n" % header for header in headers) + b"\r\n" + body
