"""Rolling restarts under clients that keep connections and never retry: how many requests are lost.

`python -m benchmarks.reliability.clients.rolling [--restarts 20] [--releases DIR]`. Two replicas are restarted in turn,
each with SIGTERM. Go is that of the system (on Debian: golang-go); without it, its clients are skipped, and said so.
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
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.checkout import ROOT, environment, python_path
from benchmarks.markdown import table
from benchmarks.reliability.attacks.setting import prepared
from benchmarks.serving.servers import Server, free_port
from benchmarks.serving.services import ServiceUnderTest, taugate
from tests.nginx_process import nginx

CLIENTS_OF_A_KIND = 4
_PAUSE_SECONDS = 2.0  # between two restarts
_START_SECONDS = 30.0
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
        answered: With 200.
        unready: With 503, by a replica that is starting, to which nginx sends requests without looking.
        other: Statuses of the other replies.
        refused: No replica accepted a connection, so nothing was sent.
        lost: Why each request that was sent has no reply.
    """

    name: str
    answered: int
    unready: int
    other: list[int]
    refused: int
    lost: list[str]


@dataclass(frozen=True)
class RollingFigures:
    """Outcomes by kind of client, and seconds from SIGTERM to the end of each restart."""

    outcomes: list[ClientOutcomes]
    stopped: list[float]

    @property
    def lost(self) -> int:
        """Requests that were sent and got no reply, or an error that is not of a replica that starts."""
        return sum(len(kind.lost) + len(kind.other) for kind in self.outcomes)

    def table(self) -> str:
        """Return the outcomes as a table in Markdown."""
        rows = [
            [kind.name, f"{kind.answered:,}", kind.unready, kind.refused, len(kind.other), len(kind.lost)]
            for kind in self.outcomes
        ]
        return table(["clients", "200", "503 while a replica starts", "not connected", "other errors", "lost"], rows)


def measure(releases: Path, restarts: int, settings: Mapping[str, str] | None = None) -> RollingFigures:
    """Restart two replicas in turn under load.

    Args:
        releases: What they serve.
        restarts: Of both together.
        settings: Environment variables of the replicas.
    """
    plain = taugate(releases, "float32", drains=True)
    service = replace(plain, environment=plain.environment | dict(settings or {}))
    stopped: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ports = [free_port(), free_port()]
        replicas = {port: stack.enter_context(ExitStack()) for port in ports}
        for port, replica in replicas.items():
            replica.enter_context(Server(service, port=port))
        front = stack.enter_context(nginx(ports, _NGINX_CHANGES))
        processes = {
            name: stack.enter_context(_running(command)) for name, command in _commands(ports, front, Path(folder))
        }
        for number in range(restarts):
            time.sleep(_PAUSE_SECONDS)
            stopped.append(_restart(service, replicas, ports[number % 2]))
        time.sleep(_PAUSE_SECONDS)
        outcomes = [ClientOutcomes(name, **json.loads(process.communicate()[0])) for name, process in processes.items()]
    return RollingFigures(outcomes, stopped)


def _restart(service: ServiceUnderTest, replicas: Mapping[int, ExitStack], port: int) -> float:
    began = time.monotonic()
    replicas[port].close()  # SIGTERM, and wait
    seconds = time.monotonic() - began
    replicas[port].enter_context(Server(service, port=port))
    return seconds


def _commands(ports: list[int], front: int, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and command of each kind of client."""
    number, replicas = str(CLIENTS_OF_A_KIND), [f"127.0.0.1:{port}" for port in ports]
    python = [sys.executable, "-m", "benchmarks.reliability.clients.keeping"]
    yield "httpx", [*python, "httpx", number, *replicas]
    yield "urllib3", [*python, "urllib3", number, *replicas]
    yield "nginx, which keeps connections for 60 s", [*python, "httpx", number, f"127.0.0.1:{front}"]
    if shutil.which("go") is None:
        print("Go is skipped: it is not installed", file=sys.stderr)
        return
    program = folder / "keeping"
    source = Path(__file__).with_name("keeping.go")
    subprocess.run(["go", "build", "-o", str(program), str(source)], check=True)
    yield "Go `net/http`", [str(program), number, *replicas]


@contextmanager
def _running(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a program that ends when its stdin is closed."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environment())
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def main() -> None:
    """Restart and print the outcomes; the exit status is 1 if a request was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout whose service is restarted")
    parser.add_argument("--restarts", type=int, default=20, help="of both replicas together")
    parser.add_argument("--releases", type=Path, help="what is served (default: a small collection made for this)")
    parser.add_argument("--drain-seconds", type=float, help="TAUGATE_DRAIN_SECONDS of the replicas")
    parser.add_argument("--workers", type=int, default=1, help="TAUGATE_WORKERS of the replicas")
    arguments = parser.parse_args()
    settings = {"PYTHONPATH": python_path(arguments.root.resolve()), "TAUGATE_WORKERS": str(arguments.workers)}
    if arguments.drain_seconds is not None:
        settings["TAUGATE_DRAIN_SECONDS"] = str(arguments.drain_seconds)
    with prepared(ROOT, 0, arguments.releases) as setting:
        figures = measure(setting.releases, arguments.restarts, settings)
    print(figures.table())
    print(f"\nFrom SIGTERM to the end: {min(figures.stopped):.1f} to {max(figures.stopped):.1f} s")
    for kind in figures.outcomes:
        for reason in kind.lost:
            print(f"{kind.name}: {reason}")
        if kind.other:
            print(f"{kind.name}: replies with {sorted(kind.other)}")
    sys.exit(1 if figures.lost else 0)


if __name__ == "__main__":
    main()
