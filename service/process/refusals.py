"""What is refused before it is a request, or before all of one is there; answered in the one shape of an error."""

from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

import orjson

from taugate.service.api.security_headers import SECURITY_HEADERS
from taugate.service.errors import error_body
from taugate.service.runtime.ids import new_id


@dataclass(frozen=True, slots=True)
class Refusal:
    """reason: as the metric `taugate_refused_total` calls it; code, message: as a caller sees it."""

    reason: str
    status: HTTPStatus
    code: str
    message: str


TOO_SLOW = Refusal(
    "receive_timeout",
    HTTPStatus.REQUEST_TIMEOUT,
    "request_timeout",
    "the whole request was not there in time (TAUGATE_RECEIVE_SECONDS)",
)
TOO_MANY = Refusal(
    "connections",
    HTTPStatus.SERVICE_UNAVAILABLE,
    "overloaded",
    "too many connections are open (TAUGATE_MAX_CONNECTIONS); try again later",
)


def raw_reply(refusal: Refusal) -> bytes:
    """A whole HTTP/1.1 reply, which closes its connection."""
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
