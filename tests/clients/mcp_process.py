"""`taugate-mcp` as a process on its own port, stopped by its process id."""

import os
import signal
import subprocess
import sys
from types import TracebackType
from typing import Self

from mcp.client.stdio import StdioServerParameters

from tests.interruptible import interruptible

COMMAND = [sys.executable, "-m", "taugate_mcp"]
CLIENTS = [path for path in sys.path if path.endswith("clients/python/src")]


def environment(**more: str) -> dict[str, str]:
    """The test's own environment, in which Python finds the client."""
    found = os.pathsep.join([*CLIENTS, os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": found} | more


def stdio(url: str, **more: str) -> StdioServerParameters:
    """What the SDK's client starts.

    Args:
        url: Of the service.
        more: Environment variables.
    """
    return StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], "--url", url], env=environment(**more))


class HTTPProcess:
    """`taugate-mcp --transport http` on a free port; leaving the context ends the process."""

    def __init__(self, url: str, *options: str, **more: str) -> None:
        command = [*COMMAND, "--url", url, "--transport", "http", "--port", "0", *options]
        self.process = subprocess.Popen(
            interruptible(command), env=environment(**more), stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self.log = self.process.stderr.readline()  # where it listens, once it does
        self.url = self.log.removeprefix("taugate-mcp: ").strip()
        assert self.url.endswith("/mcp"), self.log

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> int:
        """Signal the process; returns its exit status. `log` has what it wrote to stderr."""
        self.process.send_signal(sign)
        self.log += self.process.communicate(timeout=60)[1]
        return self.process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=60)
