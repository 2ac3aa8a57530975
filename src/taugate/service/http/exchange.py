"""A request's caller, its reply or error, and the counts, times, log lines and traces of both.

Replies are built from trusted values, so FastAPI does not validate them again. Errors have the form
{"error": {"code", "message", "request_id"}}.
"""

import asyncio
import hmac
import logging
import os
import re
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, TypeVar

import orjson
from prometheus_client import Counter, Histogram
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from taugate.retrieval.documents.filters import Filter
from taugate.service.access.authorization import ApiKey
from taugate.service.errors import ApiError, ClientGone, Overloaded
from taugate.service.metrics import REFUSALS, Metrics
from taugate.service.runtime.logs import CompletedRequest, SpanRef, Trace, Tracer
from taugate.storage.files import Json

_log = logging.getLogger(__name__)

Result = TypeVar("Result")
# Only a request that takes longer than this gets a task that watches for its client to disconnect.
_WATCH_AFTER_SECONDS = 0.05
# In this time unauthenticated requests get at most two log lines per route and status, some 10 kB in all. It is the
# interval of zap's sampler; probes and scrapers send fewer requests, so all of theirs are logged.
_SAMPLE_SECONDS = 1.0


_ACCEPTED_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")  # safe in a log line and in a header
_IDS_AT_ONCE = 256
_HALF_DIGITS = 16  # 64 bits: at a million replies an hour, two collide once in 4,000 years
_OWN_SECRET = os.urandom(32).hex()  # of ids that only this process has to recognize


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
    """Return a new id for a reply, 32 hexadecimal digits."""
    # For a key with a filter, half of the id is random, and half is an HMAC of the random half and the filter. So
    # every replica with the same list of keys can tell from the id alone whether a key may judge a reply. To a
    # caller without the secret, which is the SHA-256 of the key in that list, an id says nothing about the
    # filter, and one that was issued to another key is indistinguishable from an unknown one.
    return new_id() if not permitted else _signed(new_id()[:_HALF_DIGITS], permitted, secret)


def may_judge(permitted: Filter, query_id: str, secrets: Iterable[str] = (_OWN_SECRET,)) -> bool:
    """Return whether a key may judge a reply: if the key has no filter, or the filter that the reply was made for."""
    # `secrets` are those of the keys with this filter.
    digits = query_id[:_HALF_DIGITS]
    signed = (_signed(digits, permitted, secret) for secret in secrets)
    return not permitted or any(hmac.compare_digest(query_id.encode(), expected.encode()) for expected in signed)


def _signed(digits: str, permitted: Filter, secret: str) -> str:
    return digits + hmac.digest(secret.encode(), f"{digits}{permitted!r}".encode(), "sha256").hex()[:_HALF_DIGITS]


@dataclass(slots=True)
class Caller:
    """The sender of a request."""

    id: str  # id of the request, also in its reply and in the log
    headers: Mapping[bytes, bytes]  # headers by lower-case name, the last line of a repeated one
    span: SpanRef | None = None
    trace: Trace | None = None
    key: ApiKey | None = None
    authorized: bool = False  # whether the request passed on a path that is not public

    @property
    def key_name(self) -> str | None:
        """Name of the key, None if the caller needed none."""
        return None if self.key is None else self.key.name

    @property
    def filter(self) -> Filter:
        """Documents that the caller may see; () permits all."""
        return () if self.key is None else self.key.filter

    def reply_id(self) -> str:
        """Return a new id for a reply to the caller, see `reply_id`."""
        return new_id() if self.key is None else reply_id(self.key.filter, self.key.sha256)


# The caller of the request that the current task belongs to.
current_caller: ContextVar[Caller] = ContextVar("caller")


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of `work`, which is cancelled if the client closes the connection."""
    # The body of the request must have been read, so that the next ASGI message is the disconnect.
    worker = asyncio.current_task()
    watching: asyncio.Task[None] | None = None

    async def cancel_when_closed() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        if worker is not None:
            worker.cancel()

    def watch() -> None:
        nonlocal watching
        watching = asyncio.ensure_future(cancel_when_closed())

    timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_SECONDS, watch)
    try:
        return await work
    except asyncio.CancelledError:
        # `uncancel` returns how many other cancellations are pending.
        if worker is not None and watching is not None and watching.done() and not worker.uncancel():
            raise ClientGone("the connection was closed before the reply was ready") from None
        raise
    finally:
        timer.cancel()
        if watching is not None:
            watching.cancel()


class RequestLog:
    """The log and the metrics of requests, and their traces if there is a tracer.

    A request counts as unauthenticated if it was refused before its key was accepted, or if its path is public. Of
    these, and of requests that are over a rate or find the queue full, the first per route, status and second is
    logged. A line at the end of the second says how many were suppressed. The metrics count every request.
    """

    def __init__(self, metrics: Metrics, tracer: Tracer | None) -> None:
        self._metrics, self._tracer = metrics, tracer
        self._suppressed: dict[tuple[str, int], int] = {}  # since the last line, by route and status
        self._series: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # by route and status, as lookups are slow

    def begin_trace(self, span: SpanRef | None) -> Trace | None:
        """Begin the trace of a request, given the caller's span; None without a tracer."""
        return None if self._tracer is None else self._tracer.begin(span)

    def add_error(self, code: str) -> None:
        """Count an error by its code, if it is a refusal."""
        if code in REFUSALS:
            self._metrics.refused.labels(code).inc()

    def add(self, caller: Caller, request: CompletedRequest, seconds: float) -> None:
        """Record a request, which took `seconds` until its reply was sent."""
        kind = request.route, request.status
        if kind not in self._series:
            requests, times = self._metrics.requests, self._metrics.request_seconds
            self._series[kind] = requests.labels(request.route, str(request.status)), times.labels(request.route)
        counter, histogram = self._series[kind]
        counter.inc()
        histogram.observe(seconds)
        span = caller.span
        if self._tracer is not None and caller.trace is not None and caller.authorized:
            span = self._tracer.end(caller.trace, request)
        if (not caller.authorized or request.status == Overloaded.status) and self._suppresses(kind):
            return
        fields = request._asdict() | {"milliseconds": round(seconds * 1000, 3)}
        if caller.key is not None:
            fields["key"] = caller.key.name
        if span is not None:
            fields |= {"trace_id": span.trace_id, "span_id": span.span_id}
        _log.info("request", extra={"fields": fields})

    def _suppresses(self, kind: tuple[str, int]) -> bool:
        """Count a request of a kind that is sampled, and return whether it is left out of the log."""
        if kind in self._suppressed:
            self._suppressed[kind] += 1
            return True
        self._suppressed[kind] = 0
        asyncio.get_running_loop().call_later(_SAMPLE_SECONDS, self._log_suppressed, kind)
        return False

    def _log_suppressed(self, kind: tuple[str, int]) -> None:
        route, status = kind
        if suppressed := self._suppressed.pop(kind):
            fields = {"route": route, "status": status, "left_out": suppressed}
            refused = "refused" if status == Overloaded.status else "unauthenticated"
            _log.info(f"{refused} requests suppressed", extra={"fields": fields})


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
