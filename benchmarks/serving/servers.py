"""A server on a loopback port of its own: started, timed until it answers, weighed, and stopped by its process id."""

import ctypes
import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Self

from benchmarks.serving.client import HOST
from benchmarks.serving.processes import cpu_seconds, resident_bytes
from benchmarks.serving.services import ServiceUnderTest

_START = 300.0  # seconds: a million documents are verified and mapped, PyTorch is imported
_STOP = 30.0
_LOOK = 0.02  # seconds between two attempts to get an answer
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Server:
    """A running service; leaving the context ends it. startup: seconds from its start to its first answered query.

    Attributes:
        processors: Those that it may use, all by default.
        port: One that is free by default.
        patience: Seconds that it may take until its first answer.
    """

    def __init__(
        self,
        service: ServiceUnderTest,
        processors: set[int] | None = None,
        port: int | None = None,
        patience: float = _START,
    ) -> None:
        self.service = service
        self.startup = 0.0
        self.port = port or free_port()
        self._processors, self._patience = processors, patience

    def __enter__(self) -> Self:
        service, processors = self.service, self._processors

        def begin() -> None:
            """Make the child end with this program, however that ends, and keep to its processors."""
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if processors:
                os.sched_setaffinity(0, processors)

        # A file, because a pipe that is not read fills up and blocks the program that logs into it.
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")
        began = time.perf_counter()
        self._process = subprocess.Popen(
            service.command(self.port),
            env=_without_settings() | service.environment,
            cwd=service.folder,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=begin,  # noqa: PLW1509 (no other thread runs while servers are started)
        )
        try:
            self._wait(began)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    @property
    def cpu_seconds(self) -> float:
        """Processor time of its processes so far."""
        return cpu_seconds(self._process.pid)

    @property
    def resident_bytes(self) -> int:
        """Memory of its processes now."""
        return resident_bytes(self._process.pid)

    def ask(self, text: str) -> bytes:
        """The reply to one query.

        Raises:
            OSError: If there is no reply.
            HTTPException: If the reply is not HTTP.
            ValueError: If its status is not 200.
        """
        return self._exchange(*self.service.call(text))

    def get(self, path: str) -> bytes:
        """The reply of another route."""
        return self._exchange("GET", path, None)

    def _exchange(self, method: str, path: str, body: bytes | None) -> bytes:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        try:
            kind = {"Content-Type": "application/json"} if body else {}
            connection.request(method, path, body, kind | self.service.headers)
            reply = connection.getresponse()
            content = reply.read()
            if reply.status != 200:
                raise ValueError(f"{self.service.name}: {reply.status} {content[:300]!r}")
            return content
        finally:
            connection.close()

    @property
    def pid(self) -> int:
        """Id of its first process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True while its first process runs."""
        return self._process.poll() is None

    @property
    def logged_bytes(self) -> int:
        """Written to stdout and stderr so far."""
        return os.fstat(self._log.fileno()).st_size

    def kill(self) -> None:
        """End all of its processes at once."""
        os.killpg(self._process.pid, signal.SIGKILL)  # its own session: no other process is in the group

    def signal(self, number: signal.Signals) -> None:
        """Send its first process a signal."""
        self._process.send_signal(number)

    def _wait(self, began: float) -> None:
        while time.perf_counter() - began < self._patience:
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.service.name} ended with {self._process.returncode}:\n{self._logged()}")
            try:
                self.ask("Is it there yet?")
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(_LOOK)
            else:
                self.startup = time.perf_counter() - began
                return
        raise RuntimeError(f"{self.service.name} gave no answer within {self._patience:.0f} s:\n{self._logged()}")

    def _logged(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4000:]

    def _end(self) -> None:
        process = self._process
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP)
            except subprocess.TimeoutExpired:
                self.kill()
                process.wait()
        self._log.close()


def _without_settings() -> dict[str, str]:
    """The environment without settings of taugate."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TAUGATE_")}


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
