"""What is refused before it is a request, or before all of one is there; answered in the one shape of an error."""

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

import orjson

from service.errors import error_body
from service.ids import new_id
from service.security_headers import SECURITY_HEADERS


@dataclass(frozen=True, slots=True)
class Refusal:
    """reason: as the metric `taugate_refused_total` calls it; code, message: as a caller sees it."""

    reason: str
    status: HTTPStatus
    code: str
    message: str
    headers: Iterable[tuple[bytes, bytes]] = ()


MALFORMED = Refusal("malformed", HTTPStatus.BAD_REQUEST, "bad_request", "this is no HTTP/1.1 request")
TOO_SLOW = Refusal(
    "receive_timeout",
    HTTPStatus.REQUEST_TIMEOUT,
    "request_timeout",
    "the whole request was not there in time (TAUGATE_RECEIVE_SECONDS)",
)
HEADERS = Refusal(
    "headers",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "headers_too_large",
    "the head of the request is over TAUGATE_MAX_HEADER_BYTES, or has more than 100 headers",
)
TOO_MANY = Refusal(
    "connections",
    HTTPStatus.SERVICE_UNAVAILABLE,
    "overloaded",
    "too many connections are open (TAUGATE_MAX_CONNECTIONS); try again later",
    [(b"retry-after", b"1")],
)


def raw_reply(refusal: Refusal, defaults: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A whole reply that closes its connection; defaults: headers that the server gives every reply."""
    request_id = new_id()
    body = orjson.dumps(error_body(refusal.code, refusal.message, request_id))
    headers = (
        *defaults,
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        *refusal.headers,
        *SECURITY_HEADERS,
        (b"x-request-id", request_id.encode()),
    )
    line = f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}\r\n".encode()
    return line + b"".join(b"%b: %b\r\n" % header for header in headers) + b"\r\n" + body
