"""A real Prometheus and a real Alertmanager on free loopback ports, with the rules and routes of deploy/."""

import re
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import httpx
import yaml

from tests.loopback import free_port
from tests.servers import require

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
_TIMEOUT_SECONDS = 120


class ServerProcess:
    """A server that is ready when the context is entered, and killed when it is left."""

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
    """An Alertmanager with deploy/alertmanager/alertmanager.yml, in which a test may replace URLs and times."""

    def __init__(self, folder: Path, replaced: Mapping[str, str] = MappingProxyType({})) -> None:
        port = free_port()
        config = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text(encoding="utf-8")
        for old, new in replaced.items():
            config = config.replace(old, new)
        (folder / "alertmanager.yml").write_text(config, encoding="utf-8")
        command = [require("prometheus-alertmanager"), "--config.file=alertmanager.yml"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=", "--storage.path=data"]
        super().__init__(command, port, folder)

    def alerts(self) -> dict[tuple[str, str | None], dict[str, Any]]:
        """Active alerts by name and signal."""
        active = self.http.get("/api/v2/alerts").json()
        return {(alert["labels"]["alertname"], alert["labels"].get("signal")): alert for alert in active}


class Prometheus(ServerProcess):
    """A Prometheus with deploy/prometheus/prometheus.yml and its rules; it scrapes these ports every second.

    Alerts fire a second after their condition holds, not after the minute or more of the rules, which test_rules tests.
    """

    def __init__(self, folder: Path, targets: list[int], alertmanager: int | None = None) -> None:
        port = free_port()
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        for rules in (DEPLOY / "prometheus" / "rules").glob("*.yml"):
            quick = re.sub(r"\bfor: \w+", "for: 1s", rules.read_text(encoding="utf-8"))
            (folder / rules.name).write_text(quick, encoding="utf-8")
        config["rule_files"] = ["taugate.*.yml"]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{target}" for target in targets]}]
        if alertmanager is None:
            del config["alerting"]
        else:
            config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        command = [require("prometheus"), "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"]
        command += ["--storage.tsdb.path=data", f"--web.user-assets={DEPLOY.parent / 'docs'}"]
        super().__init__(command, port, folder)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an instant query; a refused one is an AssertionError with the reason of Prometheus."""
        reply = self.http.get("/api/v1/query", params={"query": expression}).json()
        assert reply["status"] == "success", f"{expression}: {reply['error']}"
        series: list[dict[str, Any]] = reply["data"]["result"]
        return series


def until(condition: Callable[[], object], seconds: float = _TIMEOUT_SECONDS) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.1)
