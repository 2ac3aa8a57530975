"""The context of a request: its id and key, the id of its reply, and the middleware that logs and measures it.

The ASGI state of a request holds, for inner middleware and routes:

| key | type | set by |
|---|---|---|
| request_id | str | `RequestContext` |
| key | ApiKey | `Guard`, if the request was authorized with a key |
| authorized | bool | `Guard`: whether the request passed, on a path that is not public |
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
from taugate.service.runtime.traces import CompletedRequest, SpanRef, Tracer

SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
_log = logging.getLogger(__name__)
_HEADERS = "taugate.headers"  # not in the state, which a server might share between requests
_ACCEPTED_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")  # safe in a log line and in a header
_UNMATCHED = "unmatched"  # one label for all unknown paths, so that made-up paths do not become series
# In this time unauthenticated requests get at most two log lines per route and status, some 10 kB in all. It is the
# interval of zap's sampler; probes and scrapers send fewer requests, so all of theirs are logged.
_SAMPLE_SECONDS = 1.0
_IDS_AT_ONCE = 256
_HALF_DIGITS = 16  # 64 bits: at a million replies an hour, two collide once in 4,000 years


def request_headers(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers by lower-case name, the last one of each name. The dictionary is cached in the ASGI scope."""
    if _HEADERS not in scope:
        scope[_HEADERS] = dict(scope["headers"])
    return cast("dict[bytes, bytes]", scope[_HEADERS])


def request_key(scope: Scope) -> ApiKey | None:
    """Return the API key that a request was authorized with, None if it needed none."""
    key: ApiKey | None = scope["state"].get("key")
    return key


def permitted(scope: Scope) -> Filter:
    """Return the filter of the key that a request was authorized with; () permits all documents."""
    key = request_key(scope)
    return () if key is None else key.filter


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


def reply_id(permitted: Filter) -> str:
    """Return a new id for a reply, 32 hexadecimal digits.

    For a key with a filter, half of the id is random, and half is a hash of the random half and the filter. So every
    replica can tell from the id alone whether a key may judge a reply, and an id that was issued to another key is
    indistinguishable from an unknown one.

    Args:
        permitted: Filter of the key that receives the reply, () for none.
    """
    return new_id() if not permitted else _with_hash(new_id()[:_HALF_DIGITS], permitted)


def may_judge(permitted: Filter, query_id: str) -> bool:
    """Return whether a key may judge a reply: if the key has no filter, or the filter that the reply was made for.

    Args:
        permitted: Filter of the key, () for none.
        query_id: Id of the reply, as sent by the caller.
    """
    return not permitted or query_id == _with_hash(query_id[:_HALF_DIGITS], permitted)


def _with_hash(digits: str, permitted: Filter) -> str:
    return digits + hashlib.sha256(f"{digits}{permitted!r}".encode()).hexdigest()[:_HALF_DIGITS]


class RequestContext:
    """ASGI middleware that gives a request its id, counts, times, logs and traces it, and replies 500 to exceptions.

    A request counts as unauthenticated if Guard refused it, or if its path is public.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, tracer: Tracer | None = None) -> None:
        """Wrap an application; without a tracer nothing is traced."""
        self._app = app
        self._metrics, self._tracer = metrics, tracer
        self._unauthenticated = _LogSampler()
        self._series: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # by route and status, as lookups are slow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, and reply 500 if it raises an exception. Scopes other than HTTP pass through."""
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
                present = {name for name, _ in headers}  # the playground sets its own policy; both would apply
                security = ((name, value) for name, value in SECURITY_HEADERS if name not in present)
                message["headers"] = [*headers, *security, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:  # noqa: BLE001 (the last resort: logged in full, but not shown in the reply)
            _log.exception("unhandled exception", extra={"fields": {"request_id": request_id}})
            if not status:
                await _send_internal_error(send_with_id, request_id)
        finally:
            if status:  # else there was no reply, because the process is stopping
                seconds = time.perf_counter() - began
                route = getattr(scope.get("route"), "path", _UNMATCHED)
                completed = CompletedRequest(request_id, scope["method"], route, status)
                self._count(completed, seconds)
                span = caller
                if self._tracer is not None and trace is not None and scope["state"].get("authorized"):
                    span = self._tracer.end(trace, completed)
                self._log(scope["state"], completed, seconds, span)

    def _count(self, completed: CompletedRequest, seconds: float) -> None:
        kind = completed.route, completed.status
        if kind not in self._series:
            requests, times = self._metrics.requests, self._metrics.request_seconds
            self._series[kind] = requests.labels(completed.route, str(completed.status)), times.labels(completed.route)
        counter, histogram = self._series[kind]
        counter.inc()
        histogram.observe(seconds)

    def _log(self, state: dict[str, Any], completed: CompletedRequest, seconds: float, span: SpanRef | None) -> None:
        """Log a request that was authorized, or that is in the sample of unauthenticated requests."""
        if not state.get("authorized") and self._unauthenticated.suppresses(completed.route, completed.status):
            return
        fields = {
            "request_id": completed.request_id,
            "method": completed.method,
            "route": completed.route,
            "status": completed.status,
            "milliseconds": round(seconds * 1000, 3),
        }
        if "key" in state:
            fields["key"] = state["key"].name
        if span is not None:
            fields |= {"trace_id": span.trace_id, "span_id": span.span_id}
        _log.info("request", extra={"fields": fields})


class _LogSampler:
    """Selects the first unauthenticated request per route, status and second for the log, and counts the others.

    A line at the end of the second says how many were suppressed. The metrics count every request.
    """

    def __init__(self) -> None:
        self._suppressed: dict[tuple[str, int], int] = {}  # number since the last logged request, by route and status

    def suppresses(self, route: str, status: int) -> bool:
        """Count a request, and return whether it is left out of the log."""
        kind = route, status
        if kind in self._suppressed:
            self._suppressed[kind] += 1
            return True
        self._suppressed[kind] = 0
        asyncio.get_running_loop().call_later(_SAMPLE_SECONDS, self._log_number, kind)
        return False

    def _log_number(self, kind: tuple[str, int]) -> None:
        route, status = kind
        if suppressed := self._suppressed.pop(kind):
            fields = {"route": route, "status": status, "left_out": suppressed}
            _log.info("unauthenticated requests suppressed", extra={"fields": fields})


def _request_id(header: bytes) -> str:
    return header.decode("ascii") if _ACCEPTED_ID.fullmatch(header) else new_id()


async def _send_internal_error(send: Send, request_id: str) -> None:
    body = orjson.dumps(
        error_body("internal", "internal error; the log has the details under this request id", request_id)
    )
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body})
