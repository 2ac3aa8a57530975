"""All errors that the client raises.

TaugateError
├── ConnectionFailed     no reply, or an incomplete one: refused, reset, cut off
│   └── TimedOut         the reply took longer than `timeout`
├── UnexpectedReply      the server at this URL does not speak Taugate's API
├── Refused              the service refused the request; a retry does not help
│   ├── InvalidRequest   400, 413, 422, 431: the message says what is wrong
│   ├── Unauthorized     401: the key is missing, unknown or expired
│   ├── Forbidden        403: the key is not authorized for this request
│   └── NotFound         404: no such reply, document or route
├── Unavailable          408, 429, 503, 504: the client has already retried
│   └── RateLimited      429 rate_limited: the key is over its rate limit
├── ServerFault          500 and similar: report it with its request id
├── InvalidConfiguration the URL, the key, or a proxy from the environment cannot be used; also a ValueError
└── UnsupportedFilter    a framework's filter that Taugate cannot express; also a ValueError
"""


class TaugateError(Exception):
    """The base of all errors of this client; `str(error)` is a readable message.

    Attributes:
        message: Description of the error, without status, id and place.
        status: HTTP status, None if there was no reply.
        code: Stable name of the error (docs/api.md#errors), None if the reply has none.
        request_id: Id under which the service logged the request.
        retry_after: Seconds that the service asked to wait, None if it did not.
        place: Requested URL, and the proxy if there was one; None if nothing was sent.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.code = message, status, code
        self.request_id, self.retry_after = request_id, retry_after
        self.place: str | None = None

    def __str__(self) -> str:
        """Return the message, followed by status, code, request id and place in brackets."""
        details = [str(value) for value in (self.status, self.code) if value is not None]
        if self.request_id is not None:
            details.append(f"request {self.request_id}")
        if self.place is not None:
            details.append(self.place)
        return f"{self.message} ({', '.join(details)})" if details else self.message


class ConnectionFailed(TaugateError):
    """There was no reply, or an incomplete one."""


class TimedOut(ConnectionFailed):
    """The reply took longer than the client's `timeout`."""


class UnexpectedReply(TaugateError):
    """The reply does not come from Taugate: check the URL, and any proxy in between."""


class Refused(TaugateError):
    """The service refused the request. The same request fails again."""


class InvalidRequest(Refused):
    """A field is missing, unknown or out of bounds, or the request is too large."""


class Unauthorized(Refused):
    """The API key is missing, unknown or expired."""


class Forbidden(Refused):
    """The API key lacks the scope that the message names."""


class NotFound(Refused):
    """The service does not know this query id, document or route."""


class Unavailable(TaugateError):
    """The service is overloaded, not ready or too slow. A later request may succeed."""


class RateLimited(Unavailable):
    """The API key is over its rate limit."""


class ServerFault(TaugateError):
    """The service failed. Its log has the details under `request_id`."""


class InvalidConfiguration(TaugateError, ValueError):
    """The URL, the key, or a proxy or certificates from the environment cannot be used."""


class UnsupportedFilter(TaugateError, ValueError):
    """A framework's filter has an operator or a value that Taugate cannot express."""


_BY_STATUS: dict[int, type[TaugateError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    413: InvalidRequest,
    422: InvalidRequest,
    429: Unavailable,
    431: InvalidRequest,
    503: Unavailable,
    504: Unavailable,
}


def error_type(status: int, code: str | None) -> type[TaugateError]:
    """Return the exception class for an error reply.

    Args:
        status: HTTP status.
        code: Stable name of the error, None if the reply has none.
    """
    if code == "rate_limited":
        return RateLimited
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return ServerFault
    return Refused if code else UnexpectedReply
