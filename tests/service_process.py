"""`taugate serve` on a free loopback port."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.fork_server import MODULE, shared_client
from tests.loopback import free_port


def read_metrics(text: str) -> dict[str, float]:
    """Return every series by its name and labels, as /metrics shows them."""
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def by_label(metrics: dict[str, float], name: str) -> dict[str, float]:
    """Return the values of a metric that has one label, by the values of the label."""
    return {series.split('"')[1]: value for series, value in metrics.items() if series.startswith(f"{name}{{")}


def without_id(reply: dict[str, Any]) -> dict[str, Any]:
    """Return what two replies to one query have in common."""
    return {name: value for name, value in reply.items() if name != "query_id"}


class ServiceProcess:
    """A service and an HTTP client for it; leaving the context ends the process.

    It drains after SIGTERM only if the environment sets a time, because most tests start no replacement.

    On Linux the service is a fork of a process that has imported its libraries, and `process` is the client of the
    fork. A test that looks at the process itself, kills it, or changes what Python does at its start says so by
    `forked=False`: the service then starts as users start it.
    """

    module = "taugate"  # what Python runs
    interpreter = sys.executable

    def __init__(
        self,
        releases: Path | str,
        port: int | None = None,
        stderr: int | None = None,
        *,
        forked: bool = True,
        **environment: str,
    ) -> None:
        self.port = port or free_port()
        client = shared_client() if forked and self.interpreter == sys.executable else None
        command = [self.interpreter, "-m", self.module] if client is None else [str(client)]
        command += ["serve", "--releases", str(releases), "--port", str(self.port)]
        # A file, because an unread pipe fills up and then blocks the service.
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (closed in __exit__)
        log = self._log if stderr is None else stderr
        environment = os.environ | {"TAUGATE_DRAIN_SECONDS": "0"} | environment
        if self.module != ServiceProcess.module:
            environment[MODULE] = self.module
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=120)

    def ready(self, seconds: float = 120) -> Self:
        """Wait until /readyz returns 200."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the service ended with {self.process.returncode}: {self.log()}")
            try:
                if self.http.get("/readyz").status_code == 200:
                    return self
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError("the service did not become ready")

    def with_shadow(self, **headers: str) -> Self:
        """Wait until the shadow release is loaded, which happens after the service is ready."""
        for _ in range(2400):
            if self.http.get("/release", headers=headers).raise_for_status().json()["shadow"] is not None:
                return self
            time.sleep(0.05)
        raise AssertionError("the shadow release was not loaded")

    def search(self, query: str = "What does a building permit cost?", **fields: Any) -> dict[str, Any]:
        """Return the reply to a search."""
        reply = self.http.post("/search", json={"query": query, **fields})
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    def metrics(self, **headers: str) -> dict[str, float]:
        """Return what /metrics shows now."""
        return read_metrics(self.http.get("/metrics", headers=headers).text)

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Signal the process; returns its exit code and its log."""
        if self.process.poll() is None:
            self.process.send_signal(sign)
        return self.process.wait(timeout=60), self.log()

    def log(self) -> str:
        """Return the log so far."""
        descriptor = self._log.fileno()  # pread, because the process shares the offset
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=60)
        self._log.close()
