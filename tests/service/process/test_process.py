"""The service process: sockets, signals, and shutdown without losing requests."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from taugate.service.server import duplicate_listener
from tests.service_process import ServiceProcess

WORD = "marmalade"  # in every query, so in no log line
BATCHES, SIZE = 16, 64
# A service that is told to stop by its own log line `listening`, the earliest moment a supervisor knows of it.
STOPPED_AT_ONCE = """
import logging, os, signal, sys, threading
from taugate.cli import main as cli

def stop(record):
    if record.getMessage() == "listening":
        threading.Thread(target=lambda: threading.Event().wait(10) or os._exit(124), daemon=True).start()
        os.kill(os.getpid(), signal.SIGTERM)
    return True

logging.getLogger("taugate.service.server").addFilter(stop)
sys.exit(cli.main(["serve", "--releases", sys.argv[1], "--port", "0"]))
"""


@pytest.mark.slow
def test_sigterm_completes_requests_in_progress(releases: Path) -> None:
    slow = {"TAUGATE_QUEUE_LIMIT": str(BATCHES * SIZE), "TAUGATE_DEADLINE_MS": "60000"}
    # Every query has its own length, so that none shares an encoder run: about 0.1 s a batch.
    bodies = [
        {"queries": [{"query": f"{WORD} {row} " * (10 + each), "k": 100} for each in range(SIZE)]}
        for row in range(BATCHES)
    ]
    with ServiceProcess(releases, **slow) as service, ThreadPoolExecutor(BATCHES) as pool:
        service.ready()
        url = f"http://127.0.0.1:{service.port}/search/batch"
        replies = [pool.submit(httpx.post, url, json=body, timeout=60) for body in bodies]
        _wait_until_all_are_in(service.http)
        answered_before = sum(reply.done() for reply in replies)
        code, log = service.stop()
        assert answered_before < BATCHES, "nothing was in flight any more: the test needs more work"
        assert [reply.result().status_code for reply in replies] == [200] * BATCHES
        assert all(len(reply.result().json()["responses"]) == SIZE for reply in replies)
    assert code == 0
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["status"] for line in lines if line.get("route") == "/search/batch"] == [200] * BATCHES
    assert lines[-1]["message"] == "stopped"
    assert WORD not in log
    assert "Traceback" not in log


def _wait_until_all_are_in(http: httpx.Client) -> None:
    """A batch is in the queue, in part or whole, or answered; one that the process has not read yet is neither."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        lines = http.get("/metrics").text.splitlines()
        values = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}
        answered = values.get('taugate_requests_total{code="200",route="/search/batch"}', 0)
        if math.ceil(values["taugate_queue_depth"] / SIZE) + answered == BATCHES:
            return
    raise AssertionError("the batches did not arrive")


def test_log_is_json_without_queries(releases: Path) -> None:
    with ServiceProcess(releases, TAUGATE_LOG_LEVEL="debug") as service:
        http = service.ready().http
        bad = ["", f'{{"query": "{WORD}', f'{{"query": ["{WORD}"]}}', f'{{"query": "{WORD}", "threshold": 1e39}}']
        for content in (*bad, f'{{"query": "{WORD}"}}', f'{{"queries": ["{WORD}", {{"query": "{WORD}", "k": 0}}]}}'):
            for path in ("/search", "/search/batch", f"/search?query={WORD}"):
                http.post(path, content=content, headers={"Content-Type": "application/json"})
        code, log = service.stop()
    assert code == 0
    assert WORD not in log
    assert [line for line in log.splitlines() if not _is_json(line)] == []


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except json.JSONDecodeError:
        return False


@pytest.mark.slow
def test_sigint_ends_service(releases: Path) -> None:
    with ServiceProcess(releases) as service:
        assert service.ready().stop(signal.SIGINT)[0] == 0


def test_signal_right_after_listen_is_obeyed(releases: Path) -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED_AT_ONCE, str(releases)], timeout=60, check=False)
    assert done.returncode == 0, "124: SIGTERM was swallowed and the process went on"


def test_small_reply_is_not_delayed(service: ServiceProcess) -> None:
    """Without TCP_NODELAY every reply on a kept connection waits for the client's delayed ACK, 40 ms on Linux.

    Only the first few do not, because a new connection is acknowledged at once.
    """
    seconds = []
    for _ in range(40):
        began = time.perf_counter()
        service.http.get("/livez")
        seconds.append(time.perf_counter() - began)
    assert min(seconds[20:]) < 0.03


def test_shared_listener_never_blocks() -> None:
    """Whether it blocks is one flag of all copies: a worker that starts must not set it under one that accepts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        first = duplicate_listener(listener)
        second = duplicate_listener(listener.dup())  # as the next worker has it
        assert not any(os.get_blocking(each.fileno()) for each in first + second)
        for each in (*first[1:], *second):
            each.close()
