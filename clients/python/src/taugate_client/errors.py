"""Every error that the client raises.

TaugateError
├── ConnectionFailed     no reply, or only a part of one: refused, reset, cut off
│   └── TimedOut         the reply took longer than `timeout`
├── UnexpectedReply      something answers at this URL that does not speak Taugate's API
├── Refused              the service refused the request; sending it again does not help
│   ├── InvalidRequest   400, 413, 422, 431: the message says what is wrong
│   ├── Unauthorized     401: the key is missing or unknown
│   ├── Forbidden        403: the key may not do this
│   └── NotFound         404: no such reply, document or route
├── Unavailable          408, 429, 503, 504: the client has tried again already
│   └── RateLimited      429 rate_limited: this key asks too often
├── ServerFault          500 and the like: report it with its request id
├── InvalidConfiguration the URL, the key, or a proxy of the environment cannot be used; also a ValueError
└── UnsupportedFilter    a framework's filter that Taugate has no condition for; also a ValueError
"""


class TaugateError(Exception):
    """The base of all errors of this client; `str(error)` is a message for people.

    Attributes:
        message: What is wrong, without status, id and place.
        status: The HTTP status, None if there was no reply.
        code: The stable name of the error (docs/api.md#errors), None if the service did not say one.
        request_id: The id under which the service logged the request.
        retry_after: The seconds that the service asked to wait, None if it named none. place: the URL that was asked,
            and the proxy on the way if there was one; None if nothing was sent.
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
        """The message, with what identifies the request in brackets."""
        details = [str(value) for value in (self.status, self.code) if value is not None]
        if self.request_id is not None:
            details.append(f"request {self.request_id}")
        if self.place is not None:
            details.append(self.place)
        return f"{self.message} ({', '.join(details)})" if details else self.message


class ConnectionFailed(TaugateError):
    """There was no reply, or only a part of one."""


class TimedOut(ConnectionFailed):
    """The reply took longer than the client's `timeout`."""


class UnexpectedReply(TaugateError):
    """The reply is not one of Taugate's: check the URL, and what stands between the client and the service."""


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
    """The API key sends more queries per second than it may."""


class ServerFault(TaugateError):
    """The service failed. Its log has the details under `request_id`."""


class InvalidConfiguration(TaugateError, ValueError):
    """The URL, the key, or a proxy or certificates that the environment names, cannot be used."""


class UnsupportedFilter(TaugateError, ValueError):
    """A framework's filter has an operator or a value that Taugate has no condition for."""


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
    """Return the class for a reply that is an error.

    Args:
        status: Of the HTTP reply.
        code: The service's own name of the error, None if the reply has none.
    """
    if code == "rate_limited":
        return RateLimited
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return ServerFault
    return Refused if code else UnexpectedReply
