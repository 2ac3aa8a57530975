"""Several workers on one socket: shared metrics, replacement of dead workers, and shutdown."""

import json
import multiprocessing
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from taugate.service.metrics import SHARED_FOLDER
from taugate.service.workers import _run_worker
from tests.prometheus_process import until
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

WORKERS = 2


@pytest.fixture
def workers(releases: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(releases, forked=False, TAUGATE_WORKERS=str(WORKERS), TAUGATE_CACHE_BYTES="0") as process:
        yield process.ready()


def pids(service: ServiceProcess) -> list[int]:
    """Workers: children with a socket of the service."""
    children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def ask(service: ServiceProcess, number: int) -> int:
    """A search on a connection of its own, which any of the workers may take."""
    url = f"http://127.0.0.1:{service.port}/search"
    return httpx.post(url, json={"query": f"a building permit {number}"}, timeout=30).status_code


@pytest.mark.slow
def test_any_worker_shows_all_metrics(workers: ServiceProcess) -> None:
    assert len(pids(workers)) == WORKERS
    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda number: ask(workers, number), range(100)))
    assert codes == [200] * 100
    for _ in range(6):  # whichever of them is asked
        series = dict(scrape(workers))
        assert series["taugate_requests_total{/search,200}"] == 100
        assert series["taugate_cache_requests_total{bypass}"] == 100
        assert series["taugate_queue_depth{}"] == 0
        assert [value for name, value in series.items() if name.startswith("taugate_release_info")] == [1]
        assert [value for name, value in series.items() if name.startswith("taugate_release_psi")] == [100]
        assert series["process_cpu_seconds_total{}"] > 0
        workers.http.close()
        workers.http = httpx.Client(base_url=f"http://127.0.0.1:{workers.port}", timeout=30)


def test_dead_worker_is_replaced(workers: ServiceProcess) -> None:
    assert [ask(workers, number) for number in range(20)] == [200] * 20
    first = pids(workers)
    os.kill(first[0], signal.SIGKILL)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and (len(pids(workers)) < WORKERS or pids(workers) == first):
        time.sleep(0.1)
    assert first[0] not in pids(workers)
    workers.http.close()
    workers.http = httpx.Client(base_url=f"http://127.0.0.1:{workers.port}", timeout=30)
    workers.ready()
    assert scrape(workers)["taugate_requests_total{/search,200}"] == 20


@pytest.mark.slow
def test_sigterm_ends_all_workers(workers: ServiceProcess) -> None:
    until(lambda: workers.log().count('"ready"') == WORKERS)
    alive = pids(workers)
    code, log = workers.stop()
    assert code == 0
    assert not [pid for pid in alive if Path(f"/proc/{pid}").exists()]
    messages = [json.loads(line)["message"] for line in log.splitlines()]
    assert messages.count("listening") == 1
    assert messages.count("ready") == WORKERS
    assert "Traceback" not in log


@pytest.mark.slow
def test_sigterm_worker_ends_by_itself(releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that its signal killed would not write the last lines of its log."""
    for name, value in {"RELEASES": str(releases), "DRAIN_SECONDS": "0", "WORKERS": "2"}.items():
        monkeypatch.setenv(f"TAUGATE_{name}", value)
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path))
    context = multiprocessing.get_context("spawn")
    tokens, _ = context.Pipe(duplex=False)
    messages, sender = context.Pipe(duplex=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        worker = context.Process(target=_run_worker, args=(listener, tokens, sender))
        worker.start()
        assert messages.poll(60)
        worker.terminate()
        worker.join(30)
    assert worker.exitcode == 0


def test_start_failure_is_reported(releases: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(releases, tmp_path / "own"))
    (release,) = (entry for entry in own.iterdir() if entry.is_dir())
    (release / "golden.jsonl").write_bytes(b"changed")
    with ServiceProcess(own, forked=False, TAUGATE_WORKERS=str(WORKERS)) as service:
        code, log = service.process.wait(timeout=60), service.stop()[1]
    assert code == 2
    assert "golden.jsonl" in log
    assert "Traceback" not in log


@pytest.fixture
def crash(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A file that makes starting workers kill themselves while it exists, or one of them with CRASH_ONCE set.

    Returns the file, and the environment for it.
    """
    switch = tmp_path / "crash"
    (tmp_path / "sitecustomize.py").write_text(
        "import contextlib, os, signal, sys\n"
        f"if any('spawn_main' in word for word in sys.orig_argv) and os.path.exists({str(switch)!r}):\n"
        "    with contextlib.suppress(FileNotFoundError):  # another worker was first\n"
        f"        os.environ.get('CRASH_ONCE') and os.unlink({str(switch)!r})\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    yield switch, {"TAUGATE_WORKERS": str(WORKERS), "PYTHONPATH": str(tmp_path)}


def test_three_deaths_at_start_end_service(releases: Path, crash: tuple[Path, dict[str, str]]) -> None:
    switch, environment = crash
    switch.touch()
    with ServiceProcess(releases, forked=False, **environment) as service:
        code, log = service.process.wait(timeout=60), service.log()
    assert code == 2
    assert "a worker died 3 times before it was ready (killed by SIGKILL, often for lack of memory" in log
    assert log.count("worker died; starting another") <= 2 * WORKERS
    assert "Traceback" not in log


@pytest.mark.slow
def test_three_deaths_of_replacement_end_service(releases: Path, crash: tuple[Path, dict[str, str]]) -> None:
    switch, environment = crash
    with ServiceProcess(releases, forked=False, **environment) as service:
        service.ready()
        until(lambda: service.log().count('"ready"') == WORKERS)
        switch.touch()
        os.kill(pids(service)[0], signal.SIGKILL)
        code, log = service.process.wait(timeout=60), service.log()
    assert code == 2
    assert "a worker died 3 times before it was ready" in log
    assert log.count("worker died; starting another") == 3  # the ready one, and two of its replacements


def test_worker_killed_at_start_is_replaced(releases: Path, crash: tuple[Path, dict[str, str]]) -> None:
    switch, environment = crash
    switch.touch()
    with ServiceProcess(releases, forked=False, CRASH_ONCE="1", **environment) as service:
        service.ready()
        assert service.log().count("worker died; starting another") == 1
        until(lambda: service.log().count('"ready"') == WORKERS)


@pytest.mark.slow
def test_judgement_counts_once_across_workers(releases: Path) -> None:
    with ServiceProcess(releases, TAUGATE_WORKERS="2") as process:
        service = process.ready()
        until(lambda: service.log().count('"ready"') == 2)
        url = f"http://127.0.0.1:{service.port}"
        replies = [
            httpx.post(f"{url}/search", json={"query": f"permit {n}", "threshold": -2}).json() for n in range(30)
        ]
        told = [
            [httpx.post(f"{url}/feedback", json=judged).json().get("status") for _ in range(3)]
            for judged in (
                {"query_id": reply["query_id"], "document_id": reply["results"][0]["id"], "relevant": True}
                for reply in replies
            )
        ]
        assert told == [["accepted", "repeated", "repeated"]] * 30
        assert scrape(service)["taugate_feedback_total{relevant}"] == 30
