"""Traces: which one a request belongs to, and its spans, sent to a collector where one is named.

A trace is all that happened for one request of a user, in any number of services; a span is one piece of work in it,
with its beginning, end and parent. The caller says which trace it is in the header `traceparent` (W3C Trace Context).
Spans are OpenTelemetry's and leave by OTLP over HTTP; it is imported where a collector is named, and only there.
"""

import re
import threading
import time
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, Self

from taugate.errors import InputError
from taugate.retrieval.retriever import Observe

if TYPE_CHECKING:
    from opentelemetry.context import Context

# Version, trace, parent and flags. Later versions may have more fields behind; of 00 there are none.
_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# Of one request: a batch of 64 queries, the default TAUGATE_MAX_BATCH, has 192 where none shares a stage with another.
_MOST_STAGES = 256
_LAST_SECONDS = 2.0  # for the last spans when the process ends; the exporter by itself tries for ten and more
_SPAN_NAMES = {"filter": "cut"}  # the others are named as the stages of taugate_stage_duration_seconds


@dataclass(frozen=True, slots=True)
class SpanRef:
    """A span by its ids; trace_id: 32, span_id: 16 hexadecimal digits; sampled: whether it is recorded."""

    trace_id: str
    span_id: str
    sampled: bool

    @classmethod
    def of(cls, headers: Iterable[tuple[bytes, bytes]]) -> Self | None:
        """The caller's span, from `traceparent`; None where that is absent, malformed, or there twice."""
        given = [value for name, value in headers if name == b"traceparent"]
        found = _TRACEPARENT.fullmatch(given[0]) if len(given) == 1 else None
        if found is None:
            return None
        kind, trace_id, span_id, flags, further = found.groups()
        if kind == b"00" and further is not None:
            return None
        return cls(trace_id.decode(), span_id.decode(), sampled=bool(int(flags, 16) & 1))


@dataclass(frozen=True, slots=True)
class _Stage:
    """Work for a request; began, ended: Unix time in nanoseconds."""

    name: str
    began: int
    ended: int
    queries: int


class Trace:
    """A request while it is answered; caller: the span it was made in. Threads that work for it add to it."""

    def __init__(self, caller: SpanRef | None) -> None:
        self.caller = caller
        self.began = time.time_ns()
        self.stages: list[_Stage] = []

    def add(self, name: str, seconds: float, queries: int) -> None:
        """A stage ends now; queries: how many it was done for together."""
        ended = time.time_ns()
        if len(self.stages) < _MOST_STAGES:
            self.stages.append(_Stage(name, ended - round(seconds * 1e9), ended, queries))


def check_installed(endpoint: str | None) -> None:
    """Raises InputError where a collector is named and OpenTelemetry is not installed."""
    try:
        there = endpoint is None or find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # of a package above
        there = False
    if not there:
        raise InputError(
            "TAUGATE_OTLP_ENDPOINT: OpenTelemetry is not installed; run pip install 'taugate[traces]', or unset it"
        )


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


def current() -> Trace | None:
    """The trace of the request that the calling task works for, if it is traced."""
    return _current.get()


def observing(observe: Observe, traces: Sequence[Trace | None]) -> Observe:
    """`observe`, and what tells the same to the requests whose queries share a batch; one trace for each query.

    Each of them gets the times of the whole batch, as it waited for all of it.
    """
    traced = {trace for trace in traces if trace is not None}
    if not traced:
        return observe

    def observe_and_trace(stage: str, seconds: float) -> None:
        observe(stage, seconds)
        for trace in traced:
            trace.add(stage, seconds, len(traces))

    return observe_and_trace


class Answered(NamedTuple):
    """What a request was and what came of it; route: its path, of those that there are."""

    request_id: str
    method: str
    route: str
    status: int


class Tracer:
    """Spans of requests, sent in the background: where no collector answers they are dropped, and nothing waits.

    OpenTelemetry's own variables hold as well: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER,
    OTEL_BSP_*, and OTEL_EXPORTER_OTLP_* but for the endpoint.
    """

    def __init__(self, endpoint: str) -> None:
        """endpoint: of a collector, to which /v1/traces is added."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        ours = Resource.create({SERVICE_NAME: "taugate", SERVICE_VERSION: version("taugate")})
        self._provider = TracerProvider(
            resource=ours.merge(OTELResourceDetector().detect()),  # the operator's name goes before ours
            shutdown_on_exit=False,  # `close` does it
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces"))
        )
        self._tracer = self._provider.get_tracer("taugate", version("taugate"))

    def begin(self, caller: SpanRef | None) -> Trace:
        """A request arrives; what is done for it in this task and in those it starts is its own."""
        trace = Trace(caller)
        _current.set(trace)
        return trace

    def end(self, trace: Trace, answered: Answered) -> SpanRef:
        """Make the spans of a request that was answered; returns its own, to which those of its stages belong."""
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        span = self._tracer.start_span(
            f"{answered.method} {answered.route}",
            _context(trace.caller),
            SpanKind.SERVER,
            # Names of OpenTelemetry's semantic conventions for HTTP servers.
            {
                "http.request.method": answered.method,
                "http.route": answered.route,
                "http.response.status_code": answered.status,
                "taugate.request_id": answered.request_id,
            },
            start_time=trace.began,
        )
        if span.is_recording():
            within = set_span_in_context(span)
            for stage in trace.stages:
                name, attributes = _SPAN_NAMES.get(stage.name, stage.name), {"taugate.queries": stage.queries}
                self._tracer.start_span(name, within, attributes=attributes, start_time=stage.began).end(stage.ended)
            if answered.status >= 500:
                span.set_attribute("error.type", str(answered.status))
                span.set_status(StatusCode.ERROR)
            span.end()
        ids = span.get_span_context()
        return SpanRef(f"{ids.trace_id:032x}", f"{ids.span_id:016x}", ids.trace_flags.sampled)

    def close(self) -> None:
        """Send what is left, for two seconds at most."""
        sending = threading.Thread(target=self._provider.shutdown, name="taugate-traces", daemon=True)
        sending.start()
        sending.join(_LAST_SECONDS)


def _context(caller: SpanRef | None) -> "Context":
    """The caller's span as the parent, or none."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if caller is None:
        return Context()
    ids = int(caller.trace_id, 16), int(caller.span_id, 16)
    flags = TraceFlags(TraceFlags.SAMPLED if caller.sampled else TraceFlags.DEFAULT)
    return set_span_in_context(NonRecordingSpan(SpanContext(*ids, is_remote=True, trace_flags=flags)), Context())
