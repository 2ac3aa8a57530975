"""An OpenTelemetry collector on a loopback port: OTLP over HTTP."""

from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.loopback import LoopbackHTTPServer


@dataclass(frozen=True)
class Span:
    """A span as it was received; times are Unix time in nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began: int
    ended: int
    attributes: dict[str, str | int]
    resource: dict[str, str | int]
    failed: bool


def _plain(attributes: Any) -> dict[str, str | int]:
    return {each.key: each.value.string_value or each.value.int_value for each in attributes}


class Collector(LoopbackHTTPServer):
    """Keeps the spans that it is sent."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                request = ExportTraceServiceRequest()
                request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
                collector.spans += [
                    Span(
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        _plain(span.attributes),
                        _plain(resource.resource.attributes),
                        span.status.code == span.status.STATUS_CODE_ERROR,
                    )
                    for resource in request.resource_spans
                    for scope in resource.scope_spans
                    for span in scope.spans
                ]
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(Handler)
