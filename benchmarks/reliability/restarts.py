"""A rolling restart behind nginx, under load: each replica is told to end and begun anew, one after the other."""

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from page import table
from plan import Plan
from seen import CheckedLoad
from servers import Server, free_port
from services import taugate
from targets import Target, targets
from traffic import asked, released

from retrieval.release.catalog import find

HEADING = "Rolling restarts"
_SET, _CLIENTS, _REPLICAS, _PAUSE = "squad_v2_dev", 16, 2, 2.0
_CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy" / "nginx" / "taugate.conf"
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def section(plan: Plan) -> str:
    """The section of the page."""
    released(plan.data, _SET, plan.kept)
    service = taugate(plan.kept / _SET, "float32")
    ports = [free_port() for _ in range(_REPLICAS)]
    stopped: list[float] = []
    with ExitStack() as stack:
        replicas = {port: stack.enter_context(ExitStack()) for port in ports}
        for port, replica in replicas.items():
            replica.enter_context(Server(service, port=port))
        front = stack.enter_context(_nginx(ports))
        load = CheckedLoad(front, _CLIENTS, sorted({*asked(plan.data, _SET)}), [find(plan.kept / _SET)])
        with load:
            time.sleep(_PAUSE)
            for _ in range(plan.restarts):
                for port, replica in replicas.items():
                    began = time.monotonic()
                    replica.close()  # SIGTERM, and wait
                    stopped.append(time.monotonic() - began)
                    replica.enter_context(Server(service, port=port))
                    time.sleep(_PAUSE)
    replies = load.replies
    p50, p99 = (replies.milliseconds(p, [(0.0, float("inf"))]) for p in (50, 99))
    wanted = [
        Target("failed requests", replies.failed, at_most=0),
        Target("replies that are not of the release", replies.mixed, at_most=0),
    ]
    rows = [[f"{len(replies):,}", f"{p50:.1f}", f"{p99:.1f}", f"{max(stopped):.1f} s"]]
    return f"""\
{_SET}, float32, {_REPLICAS} replicas behind nginx with `deploy/nginx/taugate.conf`, {_CLIENTS} clients in a closed loop, every query new. {plan.restarts} times each replica
is sent SIGTERM, and begun anew when it has ended; the next follows when it is ready.

{table(["replies", "p50 ms", "p99 ms", "longest from SIGTERM to the end"], rows)}

{targets(wanted)}
"""


@contextmanager
def _nginx(ports: list[int]) -> Iterator[int]:
    """The committed configuration on ports of this machine that are free; the port that it listens on."""
    front = free_port()
    text = _CONFIGURATION.read_text(encoding="utf-8")
    for written, port in (("listen 8000", front), ("127.0.0.1:8001", ports[0]), ("127.0.0.1:8002", ports[1])):
        if written not in text:
            raise ValueError(f"{_CONFIGURATION}: has no {written!r}")
        text = text.replace(written, f"{written.rpartition(':')[0] or 'listen 127.0.0.1'}:{port}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nginx.conf"
        logs = f"pid {folder}/pid; error_log {folder}/error.log;"
        temporary = " ".join(f"{name}_temp_path {folder}/{name};" for name in _TEMPORARY)
        path.write_text(
            f"daemon off; worker_processes 1; {logs} events {{ worker_connections 1024; }}\n"
            f"http {{ access_log off; {temporary}\n{text}}}\n"
        )
        process = subprocess.Popen(["nginx", "-p", folder, "-c", str(path), "-e", f"{folder}/error.log"])
        try:
            _wait(process, front)
            yield front
        finally:
            process.terminate()
            process.wait(20)


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("nginx did not start: is it installed?")
