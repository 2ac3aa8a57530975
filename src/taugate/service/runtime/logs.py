"""Logs as JSON lines on stderr, and traces of requests, without texts of queries or documents.

On a terminal, the lines are for people.

Records are queued as lines, which a separate thread writes. If stderr is not read, that thread blocks, the queue fills
up, and further lines are dropped and counted: no request, probe or signal ever waits for the log.

Traces: spans of requests and of their stages, sent to an OpenTelemetry collector if one is configured. A trace is the
record of a user's request across services; a span is one operation in it, with its start, end and parent. The caller
passes its span in the header `traceparent` (W3C Trace Context). Spans are sent as OTLP over HTTP. OpenTelemetry is
imported only if a collector is configured.
"""

import contextlib
import logging
import os
import queue
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from logging.handlers import QueueHandler, QueueListener
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from taugate.errors import InputError

if TYPE_CHECKING:
    from opentelemetry.context import Context


_WRITE_INTERVAL_SECONDS = 0.1  # too short for a reader to notice
_MAX_QUEUED_LINES = 4096  # 0.7 s of cached replies at their fastest (benchmarks/results/serving.md), some 1 MB
_FLUSH_SECONDS = 1.0  # for the last lines, when the process ends; an active reader takes milliseconds
# Writes of up to this size are not interleaved with those of other workers to the same pipe (POSIX, write()).
_MAX_WRITE_BYTES = getattr(select, "PIPE_BUF", 512)
_formatter = logging.Formatter()

# Version, trace, parent and flags. Versions after 00 may have further fields at the end.
_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# Per request. A batch of 64 queries, the default TAUGATE_MAX_BATCH, has 192 if no two queries share a stage.
_MAX_STAGES = 256
_SPAN_SECONDS = 2.0  # for the last spans when the process ends; the exporter itself would retry for ten and more
# OpenTelemetry's conventions for generative AI, of which none is stable yet: the operation of a stage.
_GEN_AI, _OPERATIONS = "gen_ai_latest_experimental", {"encode": "embeddings", "search": "retrieval"}
_SPAN_NAMES = {"filter": "cut"}  # other spans have the names of stages in taugate_stage_duration_seconds


def json_line(record: logging.LogRecord) -> bytes:
    """Format a record as a JSON line: time, level, logger, message, the keys of `extra["fields"]`, and a traceback."""
    entry: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    entry |= getattr(record, "fields", {})
    if record.exc_info:
        entry["traceback"] = _formatter.formatException(record.exc_info)
    return orjson.dumps(entry, default=str, option=orjson.OPT_APPEND_NEWLINE)


def text_line(record: logging.LogRecord) -> bytes:
    """Format a record as a line for people: local time, level, message, fields as JSON, and a traceback."""
    fields = getattr(record, "fields", None)
    message = record.getMessage().replace("\n", " ")
    words = f"{datetime.fromtimestamp(record.created):%H:%M:%S} {record.levelname.lower()}: {message}"
    line = words.encode() if fields is None else words.encode() + b" " + orjson.dumps(fields, default=str)
    return line + (f"\n{_formatter.formatException(record.exc_info)}\n".encode() if record.exc_info else b"\n")


class LineLogHandler(QueueHandler):
    """Queues records as lines, and drops them while the queue is full; `on_drop` is called for each dropped line.

    The queue is a SimpleQueue whose length is checked here: queue.Queue has a limit, but its locks are Python code
    that every request would run.
    """

    def __init__(self, descriptor: int) -> None:
        """Start the thread that writes to an open file descriptor."""
        lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        super().__init__(lines)
        self.on_drop: Callable[[], object] = lambda: None
        self._lines = lines
        self._format = text_line if os.isatty(descriptor) else json_line
        self._writer = _LineWriter(lines, descriptor)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record. Records of level WARNING and above are written at once."""
        if self._lines.qsize() >= _MAX_QUEUED_LINES:
            self.on_drop()
            return
        super().emit(record)
        if record.levelno >= logging.WARNING:
            self._writer.hurry.set()

    def prepare(self, record: logging.LogRecord) -> bytes:
        """Convert a record to the line that is queued."""
        return self._format(record)

    def close(self) -> None:
        """Wait until the queued lines are written, but at most a second, because stderr may not be read."""
        self._writer.stop()
        super().close()


class _LineWriter(QueueListener):
    """Writes lines in batches ten times a second, and at once if `hurry` is set.

    A thread that woke up for each line would take the interpreter lock from the event loop each time, which would
    get it back late in a busy process. kill -9 loses the last tenth of a second.
    """

    def __init__(self, lines: "queue.SimpleQueue[bytes | None]", descriptor: int) -> None:
        super().__init__(lines)
        self.hurry = threading.Event()
        self._lines, self._descriptor = lines, descriptor
        self._ended = threading.Event()

    def dequeue(self, block: bool) -> bytes | None:  # type: ignore[override]  # `prepare` has converted records to lines
        """Return the next line, None at the end."""
        line = self._lines.get(block)
        if line is None:
            self._ended.set()
        return line

    def handle(self, record: bytes) -> None:  # type: ignore[override]  # as above
        """Write a line, together with all that follow within a tenth of a second."""
        self.hurry.wait(_WRITE_INTERVAL_SECONDS)
        self.hurry.clear()
        with contextlib.suppress(OSError):  # the reader of stderr has gone, which must not stop the service
            for part in _batches(record, self._lines):
                _write_all(self._descriptor, part)

    def stop(self) -> None:
        """Write the queued lines, and return after at most a second."""
        self.enqueue_sentinel()
        self.hurry.set()
        self._ended.wait(_FLUSH_SECONDS)


def _batches(first: bytes, lines: "queue.SimpleQueue[bytes | None]") -> Iterator[bytes]:
    """Join as many whole lines as fit into one write, until the queue is empty."""
    part = first
    for _ in range(lines.qsize()):
        line = lines.get_nowait()
        if line is None:
            lines.put(None)  # for `dequeue`
            break
        if len(part) + len(line) > _MAX_WRITE_BYTES:
            yield part
            part = b""
        part += line
    yield part


def _write_all(descriptor: int, part: bytes) -> None:
    """Write all bytes; not through sys.stderr, whose lock would keep the interpreter from exiting while this blocks."""
    while part:
        try:
            part = part[os.write(descriptor, part) :]
        except BlockingIOError:  # the parent process may have made stderr non-blocking
            select.select([], [descriptor], [])


def configure_logging(level: str) -> None:
    """Send logs of a level and above to stderr as JSON, including those of uvicorn and Python's warnings."""
    # If the process was started without stderr, its descriptor may be in use by another file or socket.
    descriptor = os.open(os.devnull, os.O_WRONLY) if sys.__stderr__ is None else sys.__stderr__.fileno()
    logging.basicConfig(level=level.upper(), handlers=[LineLogHandler(descriptor)], force=True)
    logging.captureWarnings(capture=True)
    for library in ("httpx2", "faiss"):  # a line per request to an endpoint; which builds of FAISS are not installed
        logging.getLogger(library).setLevel(logging.WARNING)
    # Lines do not name code, thread or process, so these need not be found (Python's logging HOWTO, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def count_dropped_lines(count: Callable[[], object]) -> None:
    """Call `count` for each line that is dropped from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LineLogHandler):
            handler.on_drop = count


@dataclass(frozen=True, slots=True)
class SpanRef:
    """A reference to a span."""

    trace_id: str  # 32 hexadecimal digits
    span_id: str  # 16 hexadecimal digits
    sampled: bool  # whether the trace is recorded

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
        """Add a stage by its name in the metrics, and the readings of time.perf_counter() at its begin and its end."""
        # `queries` is the number of queries that were processed together.
        if len(self.stages) < _MAX_STAGES:
            self.stages.append(_Stage(name, self.unix_time(began), self.unix_time(ended), queries))

    def unix_time(self, clock: float) -> int:
        """Return the Unix time in ns of a reading of time.perf_counter()."""
        return self.began + round((clock - self._clock) * 1e9)


def check_installed(endpoint: str | None) -> None:
    """Check that OpenTelemetry is installed if there is an endpoint, the URL of a collector."""
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
    OTEL_BSP_*, and OTEL_EXPORTER_OTLP_* except for the endpoint. OTEL_SEMCONV_STABILITY_OPT_IN adds what the
    conventions for generative AI name.
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
        opted_in = os.environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").replace(" ", "").split(",")
        self._operations = _OPERATIONS if _GEN_AI in opted_in else {}

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
                name = _SPAN_NAMES.get(stage.name, stage.name)
                attributes: dict[str, str | int] = {"taugate.queries": stage.queries}
                if operation := self._operations.get(stage.name):
                    attributes["gen_ai.operation.name"] = operation
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
        sending.join(_SPAN_SECONDS)


def _parent_context(caller: SpanRef | None) -> "Context":
    """Return a context with the caller's span as the parent, or without one."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if caller is None:
        return Context()
    ids = int(caller.trace_id, 16), int(caller.span_id, 16)
    flags = TraceFlags(TraceFlags.SAMPLED if caller.sampled else TraceFlags.DEFAULT)
    return set_span_in_context(NonRecordingSpan(SpanContext(*ids, is_remote=True, trace_flags=flags)), Context())
