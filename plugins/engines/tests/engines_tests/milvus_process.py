"""Milvus 2.3.5 as a process of the test's own, and a network of its own for it.

It listens on all interfaces, whatever it is told. So whoever starts it runs in a network namespace that has nothing but
a loopback interface.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.loopback import HOST

_PORT = 19530  # none that the system gives to connections: a client that tries again might get it while Milvus is away
_STARTER = Path(__file__).parent / "start_milvus.py"


def alone(command: Sequence[str]) -> list[str]:
    """Return a command that runs another one in a network namespace that has only a loopback interface."""
    rights = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    up = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    return ["unshare", *rights, "--net", *up, *command]


class MilvusProcess:
    """A server that can be killed and started again on the same data; url: by which it is found.

    Attributes:
        python: Of the environment that has the package `milvus`.
        folder: Of its data.
    """

    def __init__(self, python: Path | str, folder: Path) -> None:
        self._command = [str(python), str(_STARTER), str(folder), str(_PORT)]
        self.url = f"http://{HOST}:{_PORT}"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            RuntimeError: Where it does not.
        """
        # A session of its own, whose processes end together.
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            self.stop()
            raise RuntimeError("Milvus did not start")

    def kill(self) -> None:
        """Kill it without a warning, with all that it has started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def stop(self) -> None:
        """End it; a second time does nothing."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.communicate()


@contextmanager
def milvus(python: Path | str, folder: Path) -> Iterator[MilvusProcess]:
    """A server, ended with the context."""
    server = MilvusProcess(python, folder)
    try:
        yield server
    finally:
        server.stop()
