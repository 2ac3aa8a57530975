"""Logs and traces: an unread log delays nothing, and a request has the span of its caller."""

import contextlib
import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from taugate.cli.serve import listen
from taugate.errors import InputError
from taugate.service.pipeline.search import observing
from taugate.service.runtime import logs
from taugate.service.runtime.logs import _MAX_QUEUED_LINES, SpanRef, Trace
from taugate.service.settings import read_settings
from tests.service.access.files import APP, ENTRIES, bearer, write
from tests.service.runtime.collector import Collector, Span
from tests.service_process import ServiceProcess

QUERY = json.dumps({"query": "What does a building permit cost?"})
# Logs more than a pipe holds, and ends as any program does.
LOGS_AND_ENDS = """
import logging
from taugate.service.runtime.logs import configure_logging

configure_logging("info")
for number in range(3000):
    logging.getLogger("test").log(logging.WARNING if number % 100 == 99 else logging.INFO, "line %d", number)
"""


@pytest.fixture
def unread() -> Iterator[int]:
    """The write end of a pipe that nobody reads, and that is full."""
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(ends[1], bytes(4096))
    os.set_blocking(ends[1], True)
    yield ends[1]
    for end in ends:
        os.close(end)


def ask(service: ServiceProcess, times: int) -> set[int]:
    """The status codes of so many searches on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    statuses = set()
    for _ in range(times):
        connection.request("POST", "/search", QUERY, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        reply.read()
        statuses.add(reply.status)
    connection.close()
    return statuses


@pytest.mark.slow
def test_unread_lines_are_dropped_and_counted(releases: Path, unread: int) -> None:
    with ServiceProcess(releases, stderr=unread, forked=False) as service:
        service.ready()
        assert service.metrics()["taugate_log_dropped_total"] == 0
        assert ask(service, _MAX_QUEUED_LINES + 100) == {200}  # the writer holds the few lines from before
        assert service.metrics()["taugate_log_dropped_total"] > 0
        assert service.http.get("/livez").status_code == 200
        assert service.stop()[0] == 0


@pytest.mark.slow
def test_workers_do_not_wait_for_reader(releases: Path, unread: int) -> None:
    with ServiceProcess(releases, stderr=unread, forked=False, TAUGATE_WORKERS="2") as service:
        service.ready()
        for _ in range(8):  # connections, so that both of them are asked
            assert ask(service, 50) == {200}
        assert service.http.get("/livez").status_code == 200
        assert service.stop()[0] == 0


@pytest.mark.slow
def test_lines_are_whole_and_ordered() -> None:
    done = subprocess.run([sys.executable, "-c", LOGS_AND_ENDS], capture_output=True, check=True, timeout=30)
    assert [json.loads(line)["message"] for line in done.stderr.splitlines()] == [f"line {row}" for row in range(3000)]


@pytest.mark.slow
def test_program_with_unread_log_ends(unread: int) -> None:
    done = subprocess.run([sys.executable, "-c", LOGS_AND_ENDS], stderr=unread, check=False, timeout=30)
    assert done.returncode == 0


@pytest.mark.slow
def test_program_without_stderr_writes_nothing(tmp_path: Path) -> None:
    victim = tmp_path / "file"
    opened = f"import os; assert os.open({str(victim)!r}, os.O_CREAT | os.O_RDWR) == 2\n"
    command = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, opened + LOGS_AND_ENDS]
    assert subprocess.run(command, check=False, timeout=30).returncode == 0
    assert victim.read_bytes() == b""


@pytest.mark.slow
def test_nonblocking_stderr_gets_every_line() -> None:
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    with subprocess.Popen([sys.executable, "-c", LOGS_AND_ENDS], stderr=ends[1]), os.fdopen(ends[0], "rb") as read:
        os.close(ends[1])
        lines = read.read().splitlines()
    assert [json.loads(line)["message"] for line in lines] == [f"line {row}" for row in range(3000)]


def test_lines_of_libraries_are_left_out() -> None:
    code = (
        "import logging\n"
        "from taugate.service.runtime.logs import configure_logging\n"
        "configure_logging('info')\n"
        "import faiss\n"  # says at its import which builds are not installed
        "logging.getLogger('httpx2').info('HTTP Request: POST')\n"
        "logging.getLogger('taugate').info('own')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "own" in done.stderr
    assert "ModuleNotFoundError" not in done.stderr
    assert "HTTP Request" not in done.stderr


TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
# Of W3C Trace Context, 3.2.2 and 4.3, and of its test suite.
MALFORMED = [
    "",
    "00",
    f"00-{TRACE}-{PARENT}",
    f"00-{TRACE}-{PARENT}-1",
    f"00-{TRACE}-{PARENT}-01-",
    f"00-{TRACE}-{PARENT}-01-what",
    f"00-{TRACE}-{PARENT}-01.",
    f"00-{TRACE}-{PARENT}-0x",
    f"ff-{TRACE}-{PARENT}-01",
    f"0-{TRACE}-{PARENT}-01",
    f"00-{TRACE.upper()}-{PARENT}-01",
    f"00-{TRACE[1:]}-{PARENT}-01",
    f"00-{TRACE}0-{PARENT}-01",
    f"00-{'0' * 32}-{PARENT}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"00_{TRACE}_{PARENT}_01",
    f" 00-{TRACE}-{PARENT}-01\n",
    f"01-{TRACE}-{PARENT}-01x",
    "x" * 20_000,
]


def given(*values: str) -> SpanRef | None:
    return SpanRef.of([(b"host", b"here"), *((b"traceparent", value.encode()) for value in values)])


@pytest.mark.parametrize("value", MALFORMED)
def test_malformed_traceparent_is_ignored(value: str) -> None:
    assert given(value) is None


def test_valid_traceparent_is_parsed() -> None:
    assert given(SAMPLED) == SpanRef(TRACE, PARENT, sampled=True)
    assert given(UNSAMPLED) == SpanRef(TRACE, PARENT, sampled=False)
    assert given(f"00-{TRACE}-{PARENT}-03") == SpanRef(TRACE, PARENT, sampled=True), "other flags mean nothing here"
    assert given(f"cc-{TRACE}-{PARENT}-01-what the future brings") == SpanRef(TRACE, PARENT, sampled=True)


def test_missing_or_repeated_traceparent_is_ignored() -> None:
    assert given() is None
    assert given(SAMPLED, SAMPLED) is None


def test_requests_share_times_of_batch() -> None:
    told: list[tuple[str, float]] = []
    one, other = Trace(None), Trace(None)
    observe = observing(lambda stage, began, ended: told.append((stage, ended - began)), [one, None, other, one])
    began = time.perf_counter()
    observe("encode", began, began + 0.5)
    assert told == [("encode", 0.5)]
    for trace in (one, other):
        (stage,) = trace.stages
        assert (stage.name, stage.queries) == ("encode", 4)
        assert stage.ended - stage.began == pytest.approx(500_000_000, abs=1)


def test_untraced_batch_has_no_overhead() -> None:
    def observe(stage: str, began: float, ended: float) -> None:
        pass

    assert observing(observe, [None, None]) is observe


def lines(log: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, log.splitlines()) if line.get("route") == "/search"]


@pytest.mark.slow
def test_caller_trace_is_logged_without_collector(releases: Path) -> None:
    with ServiceProcess(releases) as service:
        http = service.ready().http
        for value in (SAMPLED, MALFORMED[-1], f"{SAMPLED}-what"):
            assert http.post("/search", json={"query": "a"}, headers={"traceparent": value}).status_code == 200
        _, log = service.stop()
    first, *others = lines(log)
    assert (first["trace_id"], first["span_id"]) == (TRACE, PARENT)
    assert not any("trace_id" in line or "span_id" in line for line in others)


@pytest.fixture(scope="module")
def collected(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Span], str]]:
    """What a collector was sent, and the log, after some requests."""
    keys = write(tmp_path_factory.mktemp("keys") / "keys.json", ENTRIES)
    with Collector() as collector:
        environment = {"TAUGATE_OTLP_ENDPOINT": collector.url, "TAUGATE_KEYS_FILE": str(keys)}
        opt_in = {"OTEL_SEMCONV_STABILITY_OPT_IN": "http, gen_ai_latest_experimental"}
        with ServiceProcess(releases, **environment, **opt_in) as service:
            http, key = service.ready().http, bearer(APP)
            http.post("/search", json={"query": "traced"}, headers=key | {"traceparent": SAMPLED})
            http.post("/search", json={"query": "not sampled"}, headers=key | {"traceparent": UNSAMPLED})
            http.post("/search", json={"query": "of no trace", "k": 3}, headers=key)
            http.post("/search", json={"query": "of no trace", "k": 3}, headers=key)  # from the cache
            http.post("/search", json={"query": "a stranger's"}, headers={"traceparent": SAMPLED})
            queries = ["one", "two and two", "three and three and three"]
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: http.post("/search/batch", json={"queries": queries}, headers=key), range(4)))
            code, log = service.stop()
        assert code == 0
        yield collector.spans, log


@pytest.mark.slow
def test_request_span_has_stage_spans(collected: tuple[list[Span], str]) -> None:
    spans, log = collected
    (request,) = [span for span in spans if span.parent_id == PARENT]
    (line,) = [line for line in lines(log) if line["span_id"] == request.span_id]
    assert (request.name, request.trace_id, request.failed) == ("POST /search", TRACE, False)
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/search",
        "http.response.status_code": 200,
        "taugate.request_id": line["request_id"],
    }
    assert request.resource["service.name"] == "taugate"
    assert line["trace_id"] == TRACE
    stages = sorted((span for span in spans if span.parent_id == request.span_id), key=lambda span: span.ended)
    assert [span.name for span in stages] == ["encode", "search", "cut"]
    assert all(span.trace_id == TRACE and span.attributes["taugate.queries"] == 1 for span in stages)
    operations = [span.attributes.get("gen_ai.operation.name") for span in stages]
    assert operations == ["embeddings", "retrieval", None]
    for before, after in itertools.pairwise([request, *stages]):
        assert before.ended <= after.ended or before is request
        assert request.began <= after.began <= after.ended <= request.ended
    for before, after in itertools.pairwise(stages):
        assert before.ended <= after.began


def test_unsampled_request_has_no_span(collected: tuple[list[Span], str]) -> None:
    spans, log = collected
    line = lines(log)[1]
    assert line["trace_id"] == TRACE
    assert line["span_id"] not in {span.span_id for span in spans} | {PARENT}


def test_request_without_trace_starts_one(collected: tuple[list[Span], str]) -> None:
    spans, log = collected
    asked, again = lines(log)[2:4]
    assert len({TRACE, asked["trace_id"], again["trace_id"]}) == 3
    names = [sorted(span.name for span in spans if span.trace_id == line["trace_id"]) for line in (asked, again)]
    assert names == [["POST /search", "cut", "encode", "search"], ["POST /search"]]


def test_unauthenticated_request_has_no_span(collected: tuple[list[Span], str]) -> None:
    spans, log = collected
    assert {span.name for span in spans if not span.parent_id or span.parent_id == PARENT} == {
        "POST /search",
        "POST /search/batch",
    }
    line = lines(log)[4]
    assert (line["status"], line["trace_id"], line["span_id"]) == (401, TRACE, PARENT)


def test_shared_batch_has_stages_per_request(collected: tuple[list[Span], str]) -> None:
    spans, _ = collected
    batches = [span for span in spans if span.name == "POST /search/batch"]
    assert len(batches) == 4
    encoded = [span for batch in batches for span in spans if span.parent_id == batch.span_id and span.name == "encode"]
    assert encoded, "the first of them at least was encoded"
    assert {span.trace_id for span in encoded} <= {batch.trace_id for batch in batches}


@pytest.mark.slow
def test_silent_collector_delays_nothing(releases: Path) -> None:
    """One that takes connections and answers nothing, which is worse than none."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_BSP_MAX_QUEUE_SIZE": "512"}
        with ServiceProcess(releases, TAUGATE_OTLP_ENDPOINT=url, **environment) as service:
            http = service.ready().http
            for _ in range(1000):  # more than the queue holds
                assert http.post("/search", json={"query": "traced"}).status_code == 200
            code, log = service.stop()
    assert code == 0
    assert '"stopped"' in log


def test_endpoint_without_extra_is_refused(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "find_spec", lambda name: None)
    settings = read_settings(releases=releases, port=0, otlp_endpoint="http://127.0.0.1:4318")
    with pytest.raises(InputError, match=r"TAUGATE_OTLP_ENDPOINT: .*taugate\[traces\]"):
        listen(settings)
    listen(read_settings(releases=releases, port=0)).close()


@pytest.mark.parametrize(
    "url", ["", "collector:4318", "grpc://collector:4317", "http://", "http://me:secret@collector", "http://c?key=a"]
)
def test_malformed_endpoint_is_refused(releases: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUGATE_OTLP_ENDPOINT", url)
    with pytest.raises(InputError, match=r"^TAUGATE_OTLP_ENDPOINT: .*OTEL_EXPORTER_OTLP_HEADERS"):
        read_settings(releases=releases)
