"""The load generator of the serving benchmarks, as the process that it is."""

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest

from tests.loopback import LoopbackHTTPServer

ROOT = Path(__file__).resolve().parents[2]


class Answer(BaseHTTPRequestHandler):
    """Answers with ten bytes: 200, or 429 for the path /refuse."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(429 if self.path == "/refuse" else 200)
        self.send_header("Content-Length", "10")
        self.end_headers()
        self.wfile.write(b"x" * 10)

    def log_message(self, *_: object) -> None:
        pass


def generate(target: Path, **job: object) -> dict[str, np.ndarray]:
    """Put load on a server of this process; returns the arrays of the sample."""
    requests = [f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" for path in ("/", "/refuse")]
    with LoopbackHTTPServer(Answer) as server:
        port = int(server.url.rpartition(":")[2])
        given = {"port": port, "requests": requests, "target": str(target), **job}
        command = [sys.executable, "-m", "benchmarks.serving.load"]
        subprocess.run(command, cwd=ROOT, input=json.dumps(given), text=True, check=True, timeout=60)
    with np.load(target) as arrays:
        return dict(arrays)


def test_closed_loop_sends_each_request_once(tmp_path: Path) -> None:
    sample = generate(tmp_path / "sample.npz", order=[0, 0, 0, 0, 0, 1, 1], seconds=30.0, clients=3, once=True)
    assert sorted(sample["status"].tolist()) == [200] * 5 + [429] * 2
    assert set(sample["bytes"].tolist()) == {10}


def test_open_loop_counts_latency_from_due_time(tmp_path: Path) -> None:
    sample = generate(tmp_path / "sample.npz", order=[0], seconds=1.0, rate=100.0, connections=4)
    assert len(sample["due"]) == pytest.approx(100, abs=40)
    assert (sample["done"] >= sample["sent"]).all()
    assert (sample["sent"] >= sample["due"]).all()
