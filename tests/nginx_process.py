"""nginx with the committed configuration, on a free loopback port."""

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.loopback import free_port
from tests.servers import require

CONFIGURATION = Path(__file__).parents[1] / "deploy" / "nginx" / "taugate.conf"
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
_SECONDS = 60.0


@contextmanager
def nginx(replicas: Sequence[int], changes: Mapping[str, str] | None = None) -> Iterator[int]:
    """Run nginx in front of two replicas, and yield the port that it listens on.

    Args:
        replicas: Ports of the replicas.
        changes: Replacements of texts in the configuration.

    Raises:
        ValueError: If the configuration does not have each of these texts once.
    """
    front = free_port()
    text = CONFIGURATION.read_text(encoding="utf-8")
    ports = {"listen 8000": front, "server 127.0.0.1:8001": replicas[0], "server 127.0.0.1:8002": replicas[1]}
    moved = {written: f"{written.split()[0]} 127.0.0.1:{port}" for written, port in ports.items()}
    for text_before, text_after in (moved | dict(changes or {})).items():
        if text.count(text_before) != 1:
            raise ValueError(f"{CONFIGURATION}: does not have {text_before!r} once")
        text = text.replace(text_before, text_after)
    with tempfile.TemporaryDirectory() as folder:
        path, errors = Path(folder) / "nginx.conf", f"{folder}/error.log"
        temporary = " ".join(f"{name}_temp_path {folder}/{name};" for name in _TEMPORARY)
        path.write_text(
            f"daemon off; worker_processes 1; pid {folder}/pid; error_log {errors};\n"
            f"events {{ worker_connections 1024; }}\nhttp {{ access_log off; {temporary}\n{text}}}\n",
            encoding="utf-8",
        )
        process = subprocess.Popen([require("nginx"), "-p", folder, "-c", str(path), "-e", errors])
        try:
            _wait(process, front)
            yield front
        finally:
            process.terminate()
            process.wait(_SECONDS)


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("nginx did not start")
