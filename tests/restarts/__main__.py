"""Counts the requests that rolling restarts lose, under clients that keep connections and never retry.

`make rolling-restarts` runs `python -m tests.restarts [--restarts 20] [--releases DIR]`. Two replicas are restarted in
turn, each with SIGTERM. Clients in Go need the system's Go (on Debian: golang-go), and are skipped without it.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.loopback import free_port
from tests.nginx_process import nginx
from tests.sample_release import write_sample_release
from tests.service_process import ServiceProcess

_CLIENTS_OF_A_KIND = 4
_PAUSE_SECONDS = 2.0  # between two restarts
_NGINX_CHANGES = {
    # As nginx is without the setting: a POST that was sent is not sent again.
    "proxy_next_upstream error timeout http_503 non_idempotent;": "proxy_next_upstream error timeout;",
    # Clients of several workers wait until the first of them has loaded the release.
    "proxy_read_timeout 10s;": "proxy_read_timeout 60s;",
}


@dataclass(frozen=True)
class ClientOutcomes:
    """Requests of the clients of one kind.

    Attributes:
        answered: Replies with 200.
        unready: Replies with 503, by a replica that is starting; nginx sends requests to it without looking.
        other: Statuses of the other replies.
        refused: Requests that were not sent, as no replica accepted a connection.
        lost: Why each request that was sent has no reply.
    """

    name: str
    answered: int
    unready: int
    other: list[int]
    refused: int
    lost: list[str]

    def __str__(self) -> str:
        other = f"other statuses {sorted(self.other)}" if self.other else "no other status"
        return (
            f"{self.name}: {self.answered:,} answered, {self.unready:,} answered 503 by a starting replica, "
            f"{self.refused:,} not connected, {other}, {len(self.lost):,} lost"
        )


def measure(releases: Path, restarts: int, settings: Mapping[str, str]) -> tuple[list[ClientOutcomes], list[float]]:
    """Restart two replicas in turn under load.

    Returns:
        Outcomes by kind of client, and for each restart the seconds from SIGTERM to the end.
    """
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ports = [free_port(), free_port()]
        replicas = {port: stack.enter_context(_replica(releases, port, settings)) for port in ports}
        front = stack.enter_context(nginx(ports, _NGINX_CHANGES))
        processes = {
            name: stack.enter_context(_running(command)) for name, command in _commands(ports, front, Path(folder))
        }
        for number in range(restarts):
            time.sleep(_PAUSE_SECONDS)
            port = ports[number % 2]
            began = time.monotonic()
            replicas[port].stop()
            seconds.append(time.monotonic() - began)
            replicas[port] = stack.enter_context(_replica(releases, port, settings))
        time.sleep(_PAUSE_SECONDS)
        outcomes = [ClientOutcomes(name, **json.loads(process.communicate()[0])) for name, process in processes.items()]
    return outcomes, seconds


@contextmanager
def _replica(releases: Path, port: int, settings: Mapping[str, str]) -> Iterator[ServiceProcess]:
    with ServiceProcess(releases, port, forked=False, **settings) as service:
        yield service.ready()


def _commands(ports: list[int], front: int, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and command of each kind of client."""
    number, addresses = str(_CLIENTS_OF_A_KIND), [f"127.0.0.1:{port}" for port in ports]
    python = [sys.executable, "-m", "tests.restarts.keeping"]
    yield "httpx", [*python, "httpx", number, *addresses]
    yield "urllib3", [*python, "urllib3", number, *addresses]
    yield "nginx, which keeps connections for 60 s", [*python, "httpx", number, f"127.0.0.1:{front}"]
    if shutil.which("go") is None:
        sys.stderr.write("Go is skipped: it is not installed\n")
        return
    program = folder / "keeping"
    source = Path(__file__).with_name("keeping.go")
    subprocess.run(["go", "build", "-o", str(program), str(source)], check=True)
    yield "Go net/http", [str(program), number, *addresses]


@contextmanager
def _running(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a program that ends when its stdin is closed."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def main() -> int:
    """Restart and print the outcomes; the exit code is 1 if a request was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--restarts", type=int, default=20, help="restarts of both replicas together")
    parser.add_argument("--releases", type=Path, help="releases directory (default: one of the sample data set)")
    parser.add_argument("--drain-seconds", type=int, default=20, help="TAUGATE_DRAIN_SECONDS of the replicas")
    parser.add_argument("--workers", type=int, default=1, help="TAUGATE_WORKERS of the replicas")
    arguments = parser.parse_args()
    settings = {
        "TAUGATE_DRAIN_SECONDS": str(arguments.drain_seconds),
        "TAUGATE_WORKERS": str(arguments.workers),
        "TAUGATE_CACHE_BYTES": "0",
    }
    with tempfile.TemporaryDirectory() as folder:
        releases = arguments.releases or write_sample_release(Path(folder))
        outcomes, seconds = measure(releases, arguments.restarts, settings)
    lines = [*map(str, outcomes), f"From SIGTERM to the end: {min(seconds):.1f} to {max(seconds):.1f} s"]
    lines += [f"{kind.name}: {reason}" for kind in outcomes for reason in kind.lost]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(any(kind.lost or kind.other for kind in outcomes))


if __name__ == "__main__":
    sys.exit(main())
