"""Counts, times, logs and traces the requests that got a reply."""

import asyncio
import logging

from prometheus_client import Counter, Histogram

from taugate.service.errors import Overloaded
from taugate.service.http.caller import Caller
from taugate.service.metrics import REFUSALS, Metrics
from taugate.service.runtime.traces import CompletedRequest, SpanRef, Trace, Tracer

_log = logging.getLogger(__name__)
# In this time unauthenticated requests get at most two log lines per route and status, some 10 kB in all. It is the
# interval of zap's sampler; probes and scrapers send fewer requests, so all of theirs are logged.
_SAMPLE_SECONDS = 1.0


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
