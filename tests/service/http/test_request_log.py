"""Authorized requests are all logged; unauthenticated ones are sampled, and the others counted."""

import asyncio
import json
import logging
import math
import time
from pathlib import Path
from typing import Any

import pytest

from taugate.service.http import exchange
from taugate.service.http.exchange import Caller, RequestLog
from taugate.service.metrics import Metrics
from taugate.service.runtime.logs import CompletedRequest
from tests.service.access.files import APP, ENTRIES, bearer, write
from tests.service.inprocess import until
from tests.service_process import ServiceProcess


def _fields(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if record.getMessage() == message]  # type: ignore[attr-defined]


def test_sampled_log_counts_suppressed_requests(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "taugate.service.http.exchange")
    monkeypatch.setattr(exchange, "_SAMPLE_SECONDS", 0.5)
    metrics = Metrics()
    log = RequestLog(metrics, None)

    def add(status: int, *, authorized: bool) -> None:
        log.add(Caller("a", {}, authorized=authorized), CompletedRequest("a", "GET", "unmatched", status), 0.001)

    async def run() -> None:
        for _ in range(20):
            for status in (401, 404):
                add(status, authorized=False)
            for status in (200, 422):
                add(status, authorized=True)
        lines = [line["status"] for line in _fields(caplog, "request")]
        assert (lines.count(200), lines.count(422)) == (20, 20)
        assert (lines.count(401), lines.count(404)) == (1, 1)
        await until(lambda: _summed_up(caplog, 2))
        left_out = {line["status"]: line["left_out"] for line in _fields(caplog, "unauthenticated requests suppressed")}
        assert left_out == {401: 19, 404: 19}
        caplog.clear()
        add(401, authorized=False)
        assert len(_fields(caplog, "request")) == 1

    asyncio.run(run())
    assert metrics.requests.labels("unmatched", "401")._value.get() == 21


async def _summed_up(caplog: pytest.LogCaptureFixture, lines: int) -> bool:
    return len(_fields(caplog, "unauthenticated requests suppressed")) == lines


@pytest.mark.slow
def test_unauthenticated_requests_are_sampled(releases: Path, tmp_path: Path) -> None:
    keys = write(tmp_path / "keys.json", ENTRIES)
    began = time.monotonic()
    with ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys)) as service:
        http = service.ready().http
        for _ in range(50):
            for path in ("/search", "/nope", "/livez", "/openapi.json"):
                http.get(path)
        for _ in range(10):
            http.post("/search", json={"query": ""}, headers=bearer(APP))
        seconds = time.monotonic() - began
        _, log = service.stop()
    lines = [json.loads(line) for line in log.splitlines()]
    requests = [line for line in lines if line["message"] == "request"]
    assert len([line for line in requests if line["status"] == 422]) == 10
    strangers = [line for line in requests if "key" not in line]
    # Kinds: the four, and /readyz before and after it is ready. So many seconds by the clock were begun at most.
    assert len(strangers) <= 6 * (math.floor(seconds) + 2) < 200
