"""All errors that a caller of the API can get, each with its HTTP status and its stable code (docs/api.md).

ApiError
├── BadRequest         400 bad_request
├── BadJson            400 bad_json
├── Unauthorized       401 unauthorized, with WWW-Authenticate
├── Forbidden          403 forbidden
├── NotFound           404 not_found
├── MethodNotAllowed   405 method_not_allowed, with Allow
├── RequestTimeout     408 request_timeout, of a connection: there is no whole request yet
├── ReloadFailed       409 reload_failed
├── UnsupportedByRelease 409 unsupported_by_release
├── OtherRetriever     409 other_retriever
├── TooLarge           413 too_large
├── Invalid            422 invalid
├── VectorNeeded       422 no_encoder
├── Overloaded         429 overloaded, with Retry-After
├── RateLimited        429 rate_limited, with Retry-After
├── HeadersTooLarge    431 headers_too_large
├── ClientGone         499 client_gone, only in the log and the metrics: the client has gone
├── Internal           500 internal
├── NotReady           503 not_ready, with Retry-After
├── TooManyConnections 503 overloaded, with Retry-After, of a connection
├── EngineAway         503 engine_unavailable, with Retry-After
├── EncoderAway        503 encoder_unavailable, with Retry-After
└── DeadlineExceeded   504 deadline_exceeded

Every package of the service raises these; service/http/middleware.py counts them and turns them into replies.
service/http/connection.py writes the replies of connections. uvicorn replies 400 in plain text to bytes that are not
HTTP.
"""

import math
from collections.abc import Mapping
from typing import ClassVar


class ApiError(Exception):
    """An error that is sent to the caller as a reply; `str(error)` is the message, which never quotes a query."""

    status: ClassVar[int]
    code: ClassVar[str]  # stable name in `error.code` of the reply, which clients may rely on
    headers: Mapping[str, str] = {}


class BadRequest(ApiError):
    """The HTTP is ambiguous: two parsers could disagree about where the request ends."""

    status, code, headers = 400, "bad_request", {"Connection": "close"}


class BadJson(ApiError):
    """The body is not JSON in UTF-8."""

    status, code = 400, "bad_json"


class Unauthorized(ApiError):
    """The API key is missing, unknown or expired. The message names both headers that can carry a key."""

    status, code, headers = 401, "unauthorized", {"WWW-Authenticate": "Bearer"}


class Forbidden(ApiError):
    """The key is valid, but not authorized for this request."""

    status, code = 403, "forbidden"


class NotFound(ApiError):
    """The request names something that does not exist."""

    status, code = 404, "not_found"


class MethodNotAllowed(ApiError):
    """The path exists, but not with this method."""

    status, code = 405, "method_not_allowed"

    def __init__(self, message: str, allowed: str) -> None:
        """Set the header Allow, with methods separated by commas."""
        super().__init__(message)
        self.headers = {"Allow": allowed}


class RequestTimeout(ApiError):
    """The client took too long to send a request."""

    status, code, headers = 408, "request_timeout", {"Connection": "close"}

    def __init__(self) -> None:
        super().__init__("the request was not received in time (receive_seconds of TAUGATE_MAX_CONNECTIONS)")


class ReloadFailed(ApiError):
    """The current release cannot be loaded; the previous one keeps serving."""

    status, code = 409, "reload_failed"


class UnsupportedByRelease(ApiError):
    """The release in service is of another kind than the path: one that is searched, or one that cuts results."""

    status, code = 409, "unsupported_by_release"


class OtherRetriever(ApiError):
    """The golden questions show that the retriever is not the one that was calibrated."""

    status, code = 409, "other_retriever"


class TooLarge(ApiError):
    """The request exceeds a size limit."""

    status, code = 413, "too_large"


class Invalid(ApiError):
    """The body is well-formed JSON, but the request cannot be carried out."""

    status, code = 422, "invalid"


class VectorNeeded(ApiError):
    """The query is a text, and the release has no encoder."""

    status, code = 422, "no_encoder"


class HeadersTooLarge(ApiError):
    """The request line and headers are too long or too many."""

    status, code, headers = 431, "headers_too_large", {"Connection": "close"}


class Overloaded(ApiError):
    """The queue is full. Retry-After is one second, its smallest value: enough to empty the queue many times."""

    status, code, headers = 429, "overloaded", {"Retry-After": "1"}


class RateLimited(ApiError):
    """The key has exceeded its rate."""

    status, code = 429, "rate_limited"

    def __init__(self, message: str, seconds: float) -> None:
        """Set Retry-After to the number of seconds until the next query may pass, rounded up."""
        super().__init__(message)
        self.headers = {"Retry-After": str(max(1, math.ceil(seconds)))}


class ClientGone(ApiError):
    """The client closed the connection; nginx uses the status 499 for this."""

    status, code = 499, "client_gone"


class Internal(ApiError):
    """Any other exception, which is in the log."""

    status, code = 500, "internal"

    def __init__(self) -> None:
        super().__init__("internal error; the log has the details under this request id")


class NotReady(ApiError):
    """No release is loaded, or the service is shutting down. Retry-After is one second: loading takes a few."""

    status, code, headers = 503, "not_ready", {"Retry-After": "1"}


class TooManyConnections(ApiError):
    """The process has no room for another connection, and none that may be closed in its favour."""

    status, code, headers = 503, "overloaded", {"Connection": "close", "Retry-After": "1"}

    def __init__(self) -> None:
        super().__init__("too many connections are open (TAUGATE_MAX_CONNECTIONS); try again later")


class EngineAway(ApiError):
    """The engine that holds the documents is not responding. It is tried every second; Retry-After is two seconds."""

    status, code, headers = 503, "engine_unavailable", {"Retry-After": "2"}

    def __init__(self) -> None:
        super().__init__("the engine that holds the documents is not responding; the service retries every second")


class EncoderAway(ApiError):
    """The endpoint that encodes queries gives no vectors."""

    status, code = 503, "encoder_unavailable"

    def __init__(self, retry_in: float = 0.0) -> None:
        """Set Retry-After to the seconds until the endpoint is tried again, at least two: the trial takes a while."""
        seconds = max(2, math.ceil(retry_in))
        super().__init__(f"the endpoint that encodes queries is not responding; the service retries within {seconds} s")
        self.headers = {"Retry-After": str(seconds)}


class DeadlineExceeded(ApiError):
    """The reply took longer than TAUGATE_DEADLINE_MS."""

    status, code = 504, "deadline_exceeded"
