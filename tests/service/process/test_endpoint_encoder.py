"""The service with an encoder behind an endpoint that stalls, recovers, is away at the start, or changes its model."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from taugate.cli.main import main
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.embedding_server import EmbeddingServer, embedding_server
from tests.language_model import slow, status
from tests.sample_part import write_part
from tests.service_process import ServiceProcess

_QUERY = "What does a building permit cost?"
# One thread encodes, so that all queries that arrive meanwhile are its next batch, and nothing ends this wait.
_ONE_PATIENT_THREAD = {
    "TAUGATE_ENCODER_THREADS": "1",
    "TAUGATE_ENCODER_TIMEOUT_MS": "60000",
    "TAUGATE_DEADLINE_MS": "120000",
}


@dataclass(frozen=True)
class Behind:
    """A releases directory, and the server that encodes for it."""

    releases: Path
    server: EmbeddingServer


@pytest.fixture(scope="module")
def _calibrated(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    loaded, releases = ExportedEncoder.load(encoder), tmp_path_factory.mktemp("behind")
    with embedding_server(lambda texts: loaded.encode(texts, "query")) as server:
        part = write_part(sample, tmp_path_factory.mktemp("data") / "part", 120)
        command = ["calibrate", str(part), "--releases", str(releases), "--encoder", f"openai:{server.url}"]
        assert main([*command, "--model", "m", "--yes"]) == 0
        yield Behind(releases, server)


@pytest.fixture
def behind(_calibrated: Behind) -> Iterator[Behind]:
    model = _calibrated.server.encode
    _calibrated.server.faults, _calibrated.server.refused, _calibrated.server.max_digits = [], None, None
    yield _calibrated
    _calibrated.server.encode = model


def _wait(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_stalled_endpoint_is_503_within_deadline_and_known_queries_are_answered(behind: Behind) -> None:
    with ServiceProcess(behind.releases).ready() as service:
        known = service.search(_QUERY)["results"]
        assert known
        behind.server.faults = [slow(30)] * 50
        for number in range(8):
            reply = service.http.post("/search", json={"query": f"unknown query {number}"})
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "encoder_unavailable")  # not 504
            assert reply.headers["Retry-After"] == "2"
        assert service.search(_QUERY)["results"] == known
        assert service.search(_QUERY, k=3)["results"] == known[:3]  # another search with the cached vector
        assert service.http.get("/readyz").status_code == 200
        behind.server.faults = []
        _wait(lambda: service.http.post("/search", json={"query": "unknown query 0"}).status_code == 200)
        log = service.stop()[1]
    assert log.count("endpoint is not responding") == log.count("endpoint is responding again") == 1


@pytest.mark.parametrize(("refusal", "code"), [(413, 422), (500, 503)])
def test_query_that_endpoint_refuses_stops_no_other(refusal: int, code: int, behind: Behind) -> None:
    server, model, released = behind.server, behind.server.encode, threading.Event()
    queries = [f"{'poison' if number % 5 == 0 else 'roof'} {number}" for number in range(20)]
    with ServiceProcess(behind.releases, **_ONE_PATIENT_THREAD).ready() as service, ThreadPoolExecutor(21) as pool:

        def search(query: str) -> Future[httpx.Response]:
            return pool.submit(service.http.post, "/search", json={"query": query})

        server.refused, server.refusal, server.requests[:] = "poison", refusal, []
        server.encode = lambda texts: model(texts) if released.wait(60) else None
        first = search("first")
        _wait(lambda: server.texts == ["first"])
        others = [search(query) for query in queries]
        _wait(lambda: "\ntaugate_queue_depth 21.0\n" in service.http.get("/metrics").text)
        released.set()
        replies = [other.result() for other in others]
        assert first.result().status_code == 200
    assert [reply.status_code for reply in replies] == [code if "poison" in query else 200 for query in queries]
    assert replies[0].json()["error"]["message"].startswith("query: the endpoint" if code == 422 else "the endpoint")
    assert sorted(server.requests[1]["input"]) == sorted(queries), "they shared a batch"


def test_too_dense_query_is_answered_as_truncated(behind: Behind) -> None:
    with ServiceProcess(behind.releases).ready() as service:
        behind.server.max_digits = 50
        for _ in range(2):  # encoded, and from the cache
            reply = service.search(f"Which permit has the number {'12 ' * 40}?")
            assert (reply["truncated"], reply["calibrated"]) == (True, False)
        assert not service.search(_QUERY).get("truncated")


def test_service_loads_no_runtime_of_encoders(behind: Behind) -> None:
    with ServiceProcess(behind.releases, forked=False).ready() as service:
        assert service.search(_QUERY)["results"]
        loaded = Path(f"/proc/{service.process.pid}/maps").read_text(encoding="utf-8")
    assert not re.findall(r"/(?:onnxruntime|torch|tokenizers)/", loaded)


def test_service_starts_once_its_endpoint_responds(behind: Behind) -> None:
    behind.server.faults = [status(503)] * 4
    with ServiceProcess(behind.releases) as service:
        _wait(lambda: _code(service) == "encoder_unavailable")
        assert service.ready().search(_QUERY)["results"]


def test_changed_model_is_refused_at_start_and_alarmed_while_serving(behind: Behind) -> None:
    before = behind.server.encode
    with ServiceProcess(behind.releases, TAUGATE_CANARY_SECONDS="1").ready() as service:
        behind.server.encode = lambda texts: before(texts)[:, ::-1]
        _wait(lambda: 'taugate_drift_alarm{signal="canary"} 1.0' in service.http.get("/metrics").text)
    with ServiceProcess(behind.releases) as service:
        code, log = service.process.wait(60), service.log()
    assert code != 0
    assert f"the endpoint {behind.server.url} may have another model than then" in log


def _code(service: ServiceProcess) -> str | None:
    """The error of the readiness probe, None while nothing listens or if there is none."""
    try:
        reply = service.http.get("/readyz")
    except httpx.TransportError:
        return None
    return None if reply.status_code == 200 else reply.json()["error"]["code"]
