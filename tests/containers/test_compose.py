"""docker-compose.yml on a real engine: a search, Prometheus with rules, a second release, and a clean end."""

import asyncio
import json
import re
from pathlib import Path

import httpx
import pytest
from mcp import Client

from taugate.data.location import write_sample
from tests.containers.engine import SERVICES, Project, run, until

QUERY = {"query": "Who is liable for hidden defects?"}


@pytest.fixture(scope="module")
def up(project: Project) -> Project:
    """Start the project as docs/operations.md does."""
    project.compose("run", "--rm", "demo")
    project.compose("up", "--detach", *SERVICES)
    until(lambda: httpx.get(f"{project.url('taugate')}/readyz").status_code == 200)
    return project


def search(project: Project) -> httpx.Response:
    return httpx.post(f"{project.url('taugate')}/search", json=QUERY, headers=project.key("app"))


def prometheus(project: Project, path: str) -> dict[str, list[dict[str, object]]]:
    return httpx.get(f"{project.url('prometheus')}/api/v1/{path}").raise_for_status().json()["data"]


def test_search_requires_key(up: Project) -> None:
    assert search(up).json()["results"][0]["id"] == "dolda-fel-013"
    assert httpx.post(f"{up.url('taugate')}/search", json=QUERY).status_code == 401


def test_mcp_server_searches(up: Project) -> None:
    until(lambda: httpx.get(f"{up.url('mcp')}/livez").status_code == 200)

    async def best() -> str:
        async with Client(f"{up.url('mcp')}/mcp") as client:
            found = await client.call_tool("search", QUERY)
            return str(found.structured_content["passages"][0]["id"])

    assert asyncio.run(best()) == "dolda-fel-013"


def test_prometheus_scrapes_every_target(up: Project) -> None:
    def all_up() -> bool:
        health = {each["labels"]["job"]: each["health"] for each in prometheus(up, "targets")["activeTargets"]}
        return health == {"taugate": "up", "prometheus": "up", "alertmanager": "up"}

    until(all_up)


def test_prometheus_loads_committed_rules(up: Project) -> None:
    folder = up.folder / "deploy" / "prometheus" / "rules"
    for path in folder.glob("*.yml"):
        inside = run("exec", container(up, "prometheus"), "cat", f"/etc/prometheus/rules/{path.name}").stdout
        assert inside.encode() == path.read_bytes()
    groups = prometheus(up, "rules")["groups"]
    assert {group["file"].rpartition("/")[2] for group in groups} == {path.name for path in folder.glob("*.yml")}  # type: ignore[attr-defined]  # JSON or YAML
    until(lambda: {rule["health"] for group in prometheus(up, "rules")["groups"] for rule in group["rules"]} == {"ok"})  # type: ignore[attr-defined]  # JSON or YAML


def test_runbooks_open_at_configured_path(up: Project) -> None:
    url = run("exec", container(up, "prometheus"), "printenv", "TAUGATE_RUNBOOKS_URL").stdout.strip()
    path = url.removeprefix("http://127.0.0.1:9090")
    page = httpx.get(f"{up.url('prometheus')}{path}/TaugateDown.md").raise_for_status().text
    assert page.startswith("# TaugateDown")


def test_prometheus_finds_alertmanager(up: Project) -> None:
    until(lambda: len(prometheus(up, "alertmanagers")["activeAlertmanagers"]) == 1)


def test_redis_is_bounded_and_requires_password(up: Project) -> None:
    search(up)
    redis = container(up, "redis")
    until(lambda: "keys=" in run("exec", redis, "redis-cli", "info", "keyspace").stdout)
    assert run("exec", redis, "redis-cli", "config", "get", "maxmemory-policy").stdout.split()[-1] == "allkeys-lru"
    assert int(run("exec", redis, "redis-cli", "config", "get", "maxmemory").stdout.split()[-1]) == 256 << 20
    refused = run("exec", redis, "env", "-u", "REDISCLI_AUTH", "redis-cli", "ping", check=False)
    assert "NOAUTH" in refused.stdout + refused.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_health_check_passes(up: Project, service: str) -> None:
    name = container(up, service)
    config = json.loads(run("container", "inspect", name).stdout)[0]["Config"]
    command, *arguments = config["Healthcheck"]["Test"]
    shell = ["sh", "-c"] if command == "CMD-SHELL" else []
    run("exec", name, *shell, *arguments)


def test_calibrated_release_is_served_without_restart(up: Project) -> None:
    write_sample(up.folder / "data" / "sample")
    for path in [up.folder / "data", *(up.folder / "data").rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    before, started = search(up).json()["release"], started_at(up)
    # -T: on a terminal, which podman-compose gives to a container by default, stderr and its report end in stdout.
    done = up.compose("run", "-T", "--rm", "calibrate", "sample", "--seed", "1", "--max-loss", "0.05")
    name = Path(done.stdout.split()[-1]).name
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{12}", name), done.stdout
    assert name != before
    until(lambda: search(up).json()["release"] == name)
    assert started_at(up) == started


def started_at(project: Project) -> str:
    return run("container", "inspect", "--format", "{{.State.StartedAt}}", container(project, "service")).stdout


def container(project: Project, service: str) -> str:
    names = project.named("ps --all")
    return next(name for name in names if name.removeprefix(project.name).strip("-_").startswith(f"{service}"))


def test_down_removes_everything(up: Project) -> None:
    up.compose("down", "--volumes")
    assert up.named("ps --all") == up.named("volume ls") == up.named("network ls") == []
