"""Docker or Podman, and a compose project in a copy of the repository, with a name and ports for tests."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Self

import httpx

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ["service", "mcp", "redis", "prometheus", "alertmanager"]  # a container lab has no Grafana


@cache
def engine() -> str:
    """Return `docker` if its daemon answers, else `podman`."""
    docker = shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True, check=False)
    return "docker" if docker and docker.returncode == 0 else "podman"


def run(*arguments: str, check: bool = True, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a command of the engine, and return it with its output."""
    return finished([engine(), *arguments], check=check, timeout=timeout)


def finished(
    command: list[str], *, check: bool = True, timeout: float = 300, **options: object
) -> subprocess.CompletedProcess[str]:
    """Run a command; if it fails, its output is in the error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout, **options)
    assert not check or done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def image(target: str) -> str:
    """Return the name of an image in the compose files."""
    files = [ROOT / "docker-compose.yml", ROOT / "deploy" / "compose" / "milvus.yml"]
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    return next(line.split()[-1] for line in lines if f"image: taugate/{target}:" in line)


def base_image() -> str:
    """Return the base image of the Dockerfile."""
    lines = (ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("ARG PYTHON=") for line in lines if line.startswith("ARG PYTHON="))


def inspected(name: str) -> dict[str, Any]:
    """Return the engine's description of an image."""
    return json.loads(run("image", "inspect", name).stdout)[0]


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until a condition holds, or raise its last error."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            assert condition()
            return
        except (AssertionError, httpx.TransportError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class Project:
    """A folder with docker-compose.yml, all files that it mounts, and new secrets."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, "taugate-test"
        (folder / "data").mkdir()
        finished(["sh", str(folder / "deploy" / "compose" / "secrets.sh")])
        names = ["TAUGATE_HOST_PORT", "MCP_HOST_PORT", "PROMETHEUS_HOST_PORT", "ALERTMANAGER_HOST_PORT"]
        self.ports = dict(zip(names, _free_ports(len(names)), strict=True))

    @classmethod
    def copied(cls, folder: Path) -> Self:
        """Copy the project from the working tree into an empty folder."""
        for name in ("docker-compose.yml", "docker-compose.override.yml"):
            shutil.copy(ROOT / name, folder / name)
        for name in ("deploy", "docs/runbooks"):
            shutil.copytree(ROOT / name, folder / name)
        return cls(folder)

    def compose(self, *arguments: str, check: bool = True, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run a compose command with all profiles; jobs do nothing until they are run."""
        program = ["docker", "compose"] if engine() == "docker" else ["podman-compose"]
        profiles = ["--profile", "demo", "--profile", "calibrate", "--profile", "mcp"]
        environment = os.environ | {name: str(port) for name, port in self.ports.items()}
        command = [*program, "--project-name", self.name, *profiles, *arguments]
        return finished(command, check=check, timeout=timeout, cwd=self.folder, env=environment)

    def url(self, name: str) -> str:
        """Return the URL of a published port."""
        return f"http://127.0.0.1:{self.ports[f'{name.upper()}_HOST_PORT']}"

    def key(self, name: str) -> dict[str, str]:
        """Return request headers with a key of secrets.sh."""
        return {"Authorization": f"Bearer {(self.folder / 'secrets' / f'{name}.key').read_text(encoding='utf-8')}"}

    def named(self, kind: str) -> list[str]:
        """Return the names of this project's containers (`ps --all`), volumes or networks."""
        listing = run(*kind.split(), "--format", "{{.Names}}" if kind.startswith("ps") else "{{.Name}}").stdout
        return [line for line in listing.splitlines() if line.startswith(self.name)]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports
