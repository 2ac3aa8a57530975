"""The context of a request: its id and key, the id of its reply, and the middleware that logs and measures it.

The ASGI state of a request has, for whatever handles it further in:

| key | type | set by |
|---|---|---|
| request_id | str | `RequestContext` |
| key | ApiKey | `Guard`, where the request was admitted with a key |
| admitted | bool | `Guard`: whether it passed on a path that is not open to everybody |
| connection | HttpConnection | the server's protocol, where it is ours (service/process/connection.py) |
"""

import asyncio
import hashlib
import logging
import os
import re
import time
from collections.abc import Iterator
from typing import Any, cast

import orjson
from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taugate.retrieval.documents.filters import Filter
from taugate.service.access.keys import ApiKey
from taugate.service.api.replies import error_body
from taugate.service.metrics import Metrics
from taugate.service.runtime.traces import AnsweredRequest, SpanRef, Tracer

SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
_log = logging.getLogger("taugate.request")
_HEADERS = "taugate.headers"  # not in the state, which a server might share between requests
_ACCEPTED_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")  # what may go into a log line and a header as it came
_UNMATCHED = "unmatched"  # one label for every path that is no route: a made-up path must not become a series
# Unauthenticated requests have two log lines for each route and status in this time, some 10 kB in all, however many
# there are. It is the interval of zap's sampler; probes and scrapers ask less often, so all of theirs are logged.
_SAMPLE_SECONDS = 1.0
_IDS_AT_ONCE = 256
_HALF_DIGITS = 16  # of a million replies an hour, two have the same 64 bits once in 4,000 years


def request_headers(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers by lower-case name, the last of each name; they are put into a dictionary once a request.

    Args:
        scope: ASGI scope of the request, which keeps the dictionary.
    """
    if _HEADERS not in scope:
        scope[_HEADERS] = dict(scope["headers"])
    return cast("dict[bytes, bytes]", scope[_HEADERS])


def request_key(scope: Scope) -> ApiKey | None:
    """Return the API key that a request was admitted with, None where it needed none.

    Args:
        scope: ASGI scope of the request.
    """
    key: ApiKey | None = scope["state"].get("key")
    return key


def permitted(scope: Scope) -> Filter:
    """Return the filter of the key that a request was admitted with; () permits all documents.

    Args:
        scope: ASGI scope of the request.
    """
    key = request_key(scope)
    return () if key is None else key.filter


def _generate_ids() -> Iterator[str]:
    # The system's generator is asked for many at a time: each call releases the interpreter's lock, and a busy process
    # waits to get it back.
    while True:
        digits = os.urandom(16 * _IDS_AT_ONCE).hex()
        yield from (digits[start : start + 32] for start in range(0, len(digits), 32))


_ids = _generate_ids()


def new_id() -> str:
    """Return a new random id of 128 bits, 32 hexadecimal digits."""
    return next(_ids)


def reply_id(permitted: Filter) -> str:
    """Return a new id for a reply, 32 hexadecimal digits.

    The id of a reply to a key with a filter is half random and half a hash of that half and of the filter. So every
    replica can tell from the id alone whether a key may judge a reply, and the reply of another key looks like one that
    never existed.

    Args:
        permitted: Filter of the key that the reply is for, () for none.
    """
    return new_id() if not permitted else _with_hash(new_id()[:_HALF_DIGITS], permitted)


def may_judge(permitted: Filter, query_id: str) -> bool:
    """Tell whether a key may judge a reply, which is so where it has no filter, or the one that the reply was for.

    Args:
        permitted: Filter of the key, () for none.
        query_id: Id of the reply, as the caller sent it.
    """
    return not permitted or query_id == _with_hash(query_id[:_HALF_DIGITS], permitted)


def _with_hash(digits: str, permitted: Filter) -> str:
    return digits + hashlib.sha256(f"{digits}{permitted!r}".encode()).hexdigest()[:_HALF_DIGITS]


class RequestContext:
    """ASGI middleware that gives a request its id, counts, times, logs and traces it, and answers 500 to any exception.

    A request is unauthenticated where it was not admitted, or asks for a path that is open to everybody (Guard).
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, tracer: Tracer | None = None) -> None:
        """Wrap an application.

        Args:
            app: Is called for every request.
            metrics: Count and time requests by route and status.
            tracer: Records those that are admitted, None for no traces.
        """
        self._app = app
        self._metrics, self._tracer = metrics, tracer
        self._unauthenticated = _LogSampler()
        self._series: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # by route and status: finding them is slow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, and answer 500 where it raises anything.

        Args:
            scope: As ASGI has them; what is not HTTP passes through.
            receive: As ASGI has them; what is not HTTP passes through.
            send: As ASGI has them; what is not HTTP passes through.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = request_headers(scope)
        request_id = _request_id(headers.get(b"x-request-id", b""))
        caller = SpanRef.of(scope["headers"]) if b"traceparent" in headers else None
        trace = None if self._tracer is None else self._tracer.begin(caller)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"]
                own = {name for name, _ in headers}  # a page has a policy of its own: of two, both would hold
                general = (each for each in SECURITY_HEADERS if each[0] not in own)
                message["headers"] = [*headers, *general, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:  # noqa: BLE001 (the last line of defence: logged in full, answered with nothing of it)
            _log.exception("unhandled", extra={"fields": {"request_id": request_id}})
            if not status:
                await _send_internal_error(send_with_id, request_id)
        finally:
            if status:  # else nothing was answered: the process is going down
                seconds = time.perf_counter() - began
                route = getattr(scope.get("route"), "path", _UNMATCHED)
                answered = AnsweredRequest(request_id, scope["method"], route, status)
                self._count(answered, seconds)
                span = caller
                if self._tracer is not None and trace is not None and scope["state"].get("admitted"):
                    span = self._tracer.end(trace, answered)
                self._log(scope["state"], answered, seconds, span)

    def _count(self, answered: AnsweredRequest, seconds: float) -> None:
        kind = answered.route, answered.status
        if kind not in self._series:
            requests, times = self._metrics.requests, self._metrics.request_seconds
            self._series[kind] = requests.labels(answered.route, str(answered.status)), times.labels(answered.route)
        counter, histogram = self._series[kind]
        counter.inc()
        histogram.observe(seconds)

    def _log(self, state: dict[str, Any], answered: AnsweredRequest, seconds: float, span: SpanRef | None) -> None:
        """Log a request that was admitted, or that is in the sample of unauthenticated requests."""
        if not state.get("admitted") and self._unauthenticated.leaves_out(answered.route, answered.status):
            return
        fields = {
            "request_id": answered.request_id,
            "method": answered.method,
            "route": answered.route,
            "status": answered.status,
            "milliseconds": round(seconds * 1000, 3),
        }
        if "key" in state:
            fields["key"] = state["key"].name
        if span is not None:
            fields |= {"trace_id": span.trace_id, "span_id": span.span_id}
        _log.info("request", extra={"fields": fields})


class _LogSampler:
    """Logs the first unauthenticated request of each route and status in a second, and the number of the others.

    The line with their number comes at the end of the second. The metrics count every one.
    """

    def __init__(self) -> None:
        self._left_out: dict[tuple[str, int], int] = {}  # since the line of the same kind

    def leaves_out(self, route: str, status: int) -> bool:
        """Count a request that was answered, and tell whether it gets no line."""
        kind = route, status
        if kind in self._left_out:
            self._left_out[kind] += 1
            return True
        self._left_out[kind] = 0
        asyncio.get_running_loop().call_later(_SAMPLE_SECONDS, self._log_number, kind)
        return False

    def _log_number(self, kind: tuple[str, int]) -> None:
        route, status = kind
        if left_out := self._left_out.pop(kind):
            fields = {"route": route, "status": status, "left_out": left_out}
            _log.info("requests of strangers", extra={"fields": fields})


def _request_id(given: bytes) -> str:
    return given.decode("ascii") if _ACCEPTED_ID.fullmatch(given) else new_id()


async def _send_internal_error(send: Send, request_id: str) -> None:
    body = orjson.dumps(error_body("internal", "something broke here; the log has it under this id", request_id))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body})
