"""Every error that a caller of the API can get, each with its HTTP status and its stable code (docs/api.md).

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
├── NotReady           503 not_ready, with Retry-After
├── EngineAway         503 engine_unavailable, with Retry-After
└── DeadlineExceeded   504 deadline_exceeded

Any room of the service raises these; service/api/replies.py turns them into replies. That file also answers what the
framework refuses by itself (400 bad_json, 404 not_found for a path, 405 method_not_allowed), and
service/api/request_context.py answers 500 internal for any other exception. Two refusals come before there is a
request: 408 request_timeout and 503 overloaded (service/process/refusals.py). uvicorn answers 400 in plain text to
what is not HTTP at all.
"""

import math
from collections.abc import Mapping
from typing import ClassVar


class ApiError(Exception):
    """An error that a caller gets as a reply; `str(error)` is the message, which never repeats a query's text.

    Attributes:
        status: HTTP status.
        code: The stable name in `error.code` of the reply, which clients may rely on.
        headers: Further headers of the reply.
    """

    status: ClassVar[int]
    code: ClassVar[str]
    headers: Mapping[str, str] = {}


class BadRequest(ApiError):
    """The HTTP is ambiguous: two readers could disagree about where the request ends."""

    status, code, headers = 400, "bad_request", {"Connection": "close"}


class Unauthorized(ApiError):
    """There is no API key, or an unknown or expired one. The message names both headers that can carry a key."""

    status, code, headers = 401, "unauthorized", {"WWW-Authenticate": "Bearer"}


class Forbidden(ApiError):
    """The key is valid, but it may not do this."""

    status, code = 403, "forbidden"


class NotFound(ApiError):
    """The request names something that does not exist."""

    status, code = 404, "not_found"


class ReloadFailed(ApiError):
    """The current release cannot replace the one in service, which stays."""

    status, code = 409, "reload_failed"


class TooLarge(ApiError):
    """The request exceeds a size limit."""

    status, code = 413, "too_large"


class Invalid(ApiError):
    """The body is well-formed JSON but asks for something impossible."""

    status, code = 422, "invalid"


class HeadersTooLarge(ApiError):
    """The request line and headers are too long or too many."""

    status, code, headers = 431, "headers_too_large", {"Connection": "close"}


class Overloaded(ApiError):
    """The queue is full. Retry-After is one second, its smallest value: long enough to empty the queue many times."""

    status, code, headers = 429, "overloaded", {"Retry-After": "1"}


class RateLimited(ApiError):
    """The key has exceeded its rate.

    Attributes:
        message: For the caller.
        seconds: Until its next query may pass, rounded up in Retry-After.
    """

    status, code = 429, "rate_limited"

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.headers = {"Retry-After": str(max(1, math.ceil(seconds)))}


class ClientGone(ApiError):
    """The caller closed the connection. 499 is nginx's status for this."""

    status, code = 499, "client_gone"


class NotReady(ApiError):
    """No release is loaded, or the service is shutting down. Retry-After is one second: loading takes a few."""

    status, code, headers = 503, "not_ready", {"Retry-After": "1"}


class EngineAway(ApiError):
    """The engine that holds the documents does not answer. Retry-After is two seconds: it is asked every second."""

    status, code, headers = 503, "engine_unavailable", {"Retry-After": "2"}

    def __init__(self) -> None:
        super().__init__("the engine that holds the documents does not answer; the service asks it every second")


class DeadlineExceeded(ApiError):
    """The answer took longer than TAUGATE_DEADLINE_MS."""

    status, code = 504, "deadline_exceeded"
