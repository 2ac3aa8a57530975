"""Traces: the spans of requests and of their stages, sent to an OpenTelemetry collector where one is configured.

A trace is all that happened for one request of a user, in any number of services; a span is one piece of work in it,
with its beginning, end and parent. The caller names its span in the header `traceparent` (W3C Trace Context). Spans are
sent as OTLP over HTTP. OpenTelemetry is imported only where a collector is configured.
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

# Version, trace, parent and flags. Later versions may have more fields behind; of 00 there are none.
_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# Of one request: a batch of 64 queries, the default TAUGATE_MAX_BATCH, has 192 where none shares a stage with another.
_MAX_STAGES = 256
_FLUSH_SECONDS = 2.0  # for the last spans when the process ends; the exporter by itself tries for ten and more
_SPAN_NAMES = {"filter": "cut"}  # the others are named as the stages of taugate_stage_duration_seconds


@dataclass(frozen=True, slots=True)
class SpanRef:
    """A reference to a span.

    Attributes:
        trace_id: 32, span_id: 16 hexadecimal digits.
        sampled: Whether it is recorded.
    """

    trace_id: str
    span_id: str
    sampled: bool

    @classmethod
    def of(cls, headers: Iterable[tuple[bytes, bytes]]) -> Self | None:
        """Read the caller's span from `traceparent`; None where that is absent, malformed, or there twice.

        Args:
            headers: Of a request, by lower-case name.
        """
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
    """A stage of answering a request.

    Attributes:
        began: Unix time in ns.
        ended: Unix time in ns.
        queries: How many it was done for together.
    """

    name: str
    began: int
    ended: int
    queries: int


class Trace:
    """The record of a request while it is answered, to which threads that work for it may add."""

    def __init__(self, caller: SpanRef | None) -> None:
        """Begin now.

        Args:
            caller: The span that the request was made in, None where it names none.
        """
        self.caller = caller
        self.began = time.time_ns()
        self.stages: list[_Stage] = []

    def add(self, name: str, seconds: float, queries: int) -> None:
        """Add a stage that ends now.

        Args:
            name: As the metric of stages has it.
            seconds: How long it took.
            queries: How many it was done for together.
        """
        ended = time.time_ns()
        if len(self.stages) < _MAX_STAGES:
            self.stages.append(_Stage(name, ended - round(seconds * 1e9), ended, queries))


def check_installed(endpoint: str | None) -> None:
    """Check that OpenTelemetry is installed, where it is needed.

    Args:
        endpoint: URL of the collector, None for none.

    Raises:
        InputError: .
    """
    try:
        installed = endpoint is None or find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # of a package above
        installed = False
    if not installed:
        raise InputError(
            "TAUGATE_OTLP_ENDPOINT: OpenTelemetry is not installed; run pip install 'taugate[traces]', or unset it"
        )


# The trace of the request that the calling task works for; None where it is not traced.
current_trace: ContextVar[Trace | None] = ContextVar("trace", default=None)


class AnsweredRequest(NamedTuple):
    """A request and the status of its reply.

    Attributes:
        route: Path of the route that answered, or "unmatched".
    """

    request_id: str
    method: str
    route: str
    status: int


class Tracer:
    """Sends spans in the background: where no collector answers they are dropped, and nothing waits.

    OpenTelemetry's own variables hold as well: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER,
    OTEL_BSP_*, and OTEL_EXPORTER_OTLP_* but for the endpoint.
    """

    def __init__(self, endpoint: str) -> None:
        """Start the thread that sends.

        Args:
            endpoint: URL of a collector, to which /v1/traces is added.
        """
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
        """Begin the trace of a request, which is the current one in this task and in those that it starts.

        Args:
            caller: The span that the request was made in, None where it names none.
        """
        trace = Trace(caller)
        current_trace.set(trace)
        return trace

    def end(self, trace: Trace, answered: AnsweredRequest) -> SpanRef:
        """Send the spans of a request and of its stages, and return the request's own.

        Args:
            trace: What `begin` returned.
            answered: The request with its status.
        """
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        span = self._tracer.start_span(
            f"{answered.method} {answered.route}",
            _parent_context(trace.caller),
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
