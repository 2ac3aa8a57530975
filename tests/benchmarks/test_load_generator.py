"""The load generator of the serving benchmarks, on a server whose times are known."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.serving import load
from benchmarks.serving.client import get
from benchmarks.serving.open_loop import due_times
from benchmarks.serving.processes import cpu_seconds, resident_bytes, tree

PAUSE = 0.02  # seconds that the server takes for a request; it takes them one after the other


class OneAtATime:
    """Answers 200 with ten bytes after PAUSE, one request at a time; 429 at once where the request asks for it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        self.ready.wait()

    def run(self) -> None:
        self.loop.run_until_complete(self.serve())

    async def serve(self) -> None:
        self.turn, self.stop = asyncio.Lock(), asyncio.Event()
        server = await asyncio.start_server(self.talk, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await self.stop.wait()
        server.close()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            while await reader.readline() != b"\r\n":
                pass
            if b"refuse" in line:
                writer.write(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n")
                continue
            async with self.turn:
                await asyncio.sleep(PAUSE)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
            await asyncio.sleep(0.001)  # a reply in two pieces is one reply
            writer.write(b"x" * 10)
        writer.close()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join()


@pytest.fixture
def server() -> Iterator[OneAtATime]:
    running = OneAtATime()
    yield running
    running.close()


def test_a_closed_loop_has_as_many_requests_under_way_as_clients(server: OneAtATime) -> None:
    sample = load.run(load.LoadJob(server.port, [0], 1.0, clients=4), [get("/")])
    assert sample.statuses.keys() == {200}
    assert set(sample.bytes) == {10}
    assert sample.rate <= 1 / PAUSE
    assert sample.milliseconds(50) >= 3 * 1000 * PAUSE  # three others are served in between


def test_an_order_that_is_asked_once_ends_the_load(server: OneAtATime) -> None:
    sample = load.run(load.LoadJob(server.port, [0] * 7, 30.0, clients=3, once=True), [get("/")])
    assert len(sample.done) == 7


def test_latency_counts_from_when_a_request_was_due(server: OneAtATime) -> None:
    """At twice what the server can do, with two connections: what waits for a connection has waited."""
    sample = load.run(load.LoadJob(server.port, [0], 1.0, rate=2 / PAUSE, connections=2), [get("/")])
    assert len(sample.due) == pytest.approx(100, abs=40)
    assert sample.milliseconds(99) > 500
    assert np.percentile(sample.done - sample.sent, 99) < 0.5


def test_refusals_are_counted_apart(server: OneAtATime) -> None:
    sample = load.run(load.LoadJob(server.port, [0, 1], 0.5, clients=2), [get("/"), get("/refuse")])
    assert sample.statuses.keys() == {200, 429}
    assert sample.milliseconds(50, status=429) < sample.milliseconds(50)


def test_arrivals_are_poissons() -> None:
    times = due_times(rate=1000, seconds=20, seed=0)
    gaps = np.diff(times)
    assert len(times) == pytest.approx(20_000, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)
    assert times[-1] < 20
    assert np.array_equal(times, due_times(1000, 20, 0))


def test_a_process_and_its_children_are_weighed_together() -> None:
    child = "sum(range(5 * 10**7)); import time; time.sleep(60)"  # half a second and more
    work = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", work], start_new_session=True)
    try:
        for _ in range(200):
            if len(tree(process.pid)) == 2 and cpu_seconds(process.pid) > 0.1:
                break
            threading.Event().wait(0.05)
        assert len(tree(process.pid)) == 2
        assert cpu_seconds(process.pid) > 0.1
        assert resident_bytes(process.pid) > 10_000_000
    finally:
        import os
        import signal

        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
