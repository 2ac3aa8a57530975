"""Traces: spans of requests and of their stages, sent to an OpenTelemetry collector if one is configured.

A trace is the record of a user's request across services; a span is one operation in it, with its start, end and
parent. The caller passes its span in the header `traceparent` (W3C Trace Context). Spans are sent as OTLP over HTTP.
OpenTelemetry is imported only if a collector is configured.
"""

import re
import threading
import time
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, Self

from taugate.errors import InputError

if TYPE_CHECKING:
    from opentelemetry.context import Context

# Version, trace, parent and flags. Versions after 00 may have further fields at the end.
_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# Per request. A batch of 64 queries, the default TAUGATE_MAX_BATCH, has 192 if no two queries share a stage.
_MAX_STAGES = 256
_FLUSH_SECONDS = 2.0  # for the last spans when the process ends; the exporter itself would retry for ten and more
_SPAN_NAMES = {"filter": "cut"}  # other spans have the names of stages in taugate_stage_duration_seconds


@dataclass(frozen=True, slots=True)
class SpanRef:
    """A reference to a span.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        sampled: Whether the trace is recorded.
    """

    trace_id: str
    span_id: str
    sampled: bool

    @classmethod
    def of(cls, headers: Iterable[tuple[bytes, bytes]]) -> Self | None:
        """Read the caller's span from `traceparent`; None if the header is absent, malformed or repeated."""
        parents = [value for name, value in headers if name == b"traceparent"]
        match = _TRACEPARENT.fullmatch(parents[0]) if len(parents) == 1 else None
        if match is None:
            return None
        format_version, trace_id, span_id, flags, further = match.groups()
        if format_version == b"00" and further is not None:
            return None
        return cls(trace_id.decode(), span_id.decode(), sampled=bool(int(flags, 16) & 1))


class _Stage(NamedTuple):
    """A stage of handling a request, with Unix times in ns."""

    name: str
    began: int
    ended: int
    queries: int


class Trace:
    """The record of a request in progress. Threads that work on the request may add stages."""

    def __init__(self, caller: SpanRef | None) -> None:
        """Start now, as a child of the caller's span if there is one."""
        self.caller = caller
        self.began = time.time_ns()
        # All times of a trace are this reading plus seconds of the monotonic clock, so that stages keep their order.
        self._clock = time.perf_counter()
        self.stages: list[_Stage] = []

    def add(self, name: str, began: float, ended: float, queries: int) -> None:
        """Add a stage by its name in the metrics, and the readings of time.perf_counter() at its begin and its end.

        `queries` is the number of queries that were processed together.
        """
        if len(self.stages) < _MAX_STAGES:
            self.stages.append(_Stage(name, self.unix_time(began), self.unix_time(ended), queries))

    def unix_time(self, clock: float) -> int:
        """Return the Unix time in ns of a reading of time.perf_counter()."""
        return self.began + round((clock - self._clock) * 1e9)


def check_installed(endpoint: str | None) -> None:
    """Check that OpenTelemetry is installed if there is an endpoint, the URL of a collector.

    Raises:
        InputError: If OpenTelemetry is not installed.
    """
    try:
        installed = endpoint is None or find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # a parent package is missing
        installed = False
    if not installed:
        raise InputError(
            "TAUGATE_OTLP_ENDPOINT: OpenTelemetry is not installed; run pip install 'taugate[traces]', or unset it"
        )


# The trace of the request that the current task belongs to; None if it is not traced.
current_trace: ContextVar[Trace | None] = ContextVar("trace", default=None)


class CompletedRequest(NamedTuple):
    """A request and the status of its reply; `route` is the path of its route, or "unmatched"."""

    request_id: str
    method: str
    route: str
    status: int


class Tracer:
    """Sends spans in the background. If the collector does not respond, spans are dropped, and no request waits.

    OpenTelemetry's own variables apply as well: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER,
    OTEL_BSP_*, and OTEL_EXPORTER_OTLP_* except for the endpoint.
    """

    def __init__(self, endpoint: str) -> None:
        """Start the thread that sends spans to a collector, at the endpoint's path /v1/traces."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        defaults = Resource.create({SERVICE_NAME: "taugate", SERVICE_VERSION: version("taugate")})
        self._provider = TracerProvider(
            resource=defaults.merge(OTELResourceDetector().detect()),  # the operator's variables take precedence
            shutdown_on_exit=False,  # `close` does it
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces"))
        )
        self._tracer = self._provider.get_tracer("taugate", version("taugate"))

    def begin(self, caller: SpanRef | None) -> Trace:
        """Begin the trace of a request. It is the current trace in this task and in the tasks that it starts."""
        trace = Trace(caller)
        current_trace.set(trace)
        return trace

    def end(self, trace: Trace, completed: CompletedRequest) -> SpanRef:
        """Send the spans of a request and its stages, and return the span of the request."""
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        span = self._tracer.start_span(
            f"{completed.method} {completed.route}",
            _parent_context(trace.caller),
            SpanKind.SERVER,
            # Names from OpenTelemetry's semantic conventions for HTTP servers.
            {
                "http.request.method": completed.method,
                "http.route": completed.route,
                "http.response.status_code": completed.status,
                "taugate.request_id": completed.request_id,
            },
            start_time=trace.began,
        )
        if span.is_recording():
            context = set_span_in_context(span)
            for stage in trace.stages:
                name, attributes = _SPAN_NAMES.get(stage.name, stage.name), {"taugate.queries": stage.queries}
                self._tracer.start_span(name, context, attributes=attributes, start_time=stage.began).end(stage.ended)
            if completed.status >= 500:
                span.set_attribute("error.type", str(completed.status))
                span.set_status(StatusCode.ERROR)
            span.end(trace.unix_time(time.perf_counter()))
        ids = span.get_span_context()
        return SpanRef(f"{ids.trace_id:032x}", f"{ids.span_id:016x}", ids.trace_flags.sampled)

    def close(self) -> None:
        """Send the remaining spans, for at most two seconds."""
        sending = threading.Thread(target=self._provider.shutdown, name="taugate-traces", daemon=True)
        sending.start()
        sending.join(_FLUSH_SECONDS)


def _parent_context(caller: SpanRef | None) -> "Context":
    """Return a context with the caller's span as the parent, or without one."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if caller is None:
        return Context()
    ids = int(caller.trace_id, 16), int(caller.span_id, 16)
    flags = TraceFlags(TraceFlags.SAMPLED if caller.sampled else TraceFlags.DEFAULT)
    return set_span_in_context(NonRecordingSpan(SpanContext(*ids, is_remote=True, trace_flags=flags)), Context())
