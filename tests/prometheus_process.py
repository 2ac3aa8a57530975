"""A real Prometheus and a real Alertmanager on loopback ports of their own, with the rules and routes of deploy/."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from tests.loopback import free_port

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
_PATIENCE = 60


class ServerProcess:
    """A server that is ready inside the context, and ended by its process id after it."""

    def __init__(self, command: list[str], port: int, folder: Path) -> None:
        self.port = port
        self.log = (folder / "log").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(command, cwd=folder, stdout=self.log, stderr=subprocess.STDOUT)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10)

    def __enter__(self) -> Self:
        until(self._ready)
        return self

    def _ready(self) -> bool:
        assert self.process.poll() is None, Path(self.log.name).read_text(encoding="utf-8")
        try:
            return self.http.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def __exit__(self, *exception: object) -> None:
        self.http.close()
        self.process.kill()
        self.process.wait(timeout=20)
        self.log.close()


class Alertmanager(ServerProcess):
    """deploy/alertmanager/alertmanager.yml as it is."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        command = ["prometheus-alertmanager", f"--config.file={DEPLOY / 'alertmanager' / 'alertmanager.yml'}"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=", "--storage.path=data"]
        super().__init__(command, port, folder)

    def alerts(self) -> dict[str, dict[str, Any]]:
        """Active alerts by name."""
        return {each["labels"]["alertname"]: each for each in self.http.get("/api/v2/alerts").json()}


class Prometheus(ServerProcess):
    """deploy/prometheus/prometheus.yml with its rules, looking every second at these ports of the job `taugate`."""

    def __init__(self, folder: Path, targets: list[int], alertmanager: int | None = None) -> None:
        port = free_port()
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(DEPLOY / "prometheus" / "rules" / "*.yml")]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{target}" for target in targets]}]
        if alertmanager is None:
            del config["alerting"]
        else:
            config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        command = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"]
        command += ["--storage.tsdb.path=data"]
        super().__init__(command, port, folder)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query; what Prometheus refuses is an AssertionError with its reason."""
        answer = self.http.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", f"{expression}: {answer['error']}"
        series: list[dict[str, Any]] = answer["data"]["result"]
        return series


def until(condition: Callable[[], object], seconds: float = _PATIENCE) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
