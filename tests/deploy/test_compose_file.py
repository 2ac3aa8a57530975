"""docker-compose.yml: rules that every service must follow."""

import json
import re
import shutil
import subprocess
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from taugate.service.access.authorization import check_keys, parse_keys
from taugate.service.settings import VARIABLES
from taugate_mcp.command import KEY_FILE, parser
from taugate_mcp.transports import GRACE_SECONDS
from tests.servers import require

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
OVERRIDE = yaml.safe_load((ROOT / "docker-compose.override.yml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
JOBS = {"calibrate", "demo"}


@pytest.mark.parametrize("name", SERVICES)
def test_containers_are_hardened_and_bounded(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["deploy"]["resources"]["limits"]["memory"]
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+(-[a-z0-9]+)?", service["image"])
    assert service["restart"] == ("no" if name in JOBS else "unless-stopped")
    assert ("healthcheck" in service) == (name not in JOBS)


# Defaults of Grafana by which the server or its pages ask other hosts, each turned round.
_GRAFANA_ASKS_NOTHING = {
    "GF_ANALYTICS_REPORTING_ENABLED": "false",
    "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
    "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
    "GF_NEWS_NEWS_FEED_ENABLED": "false",
    "GF_PLUGINS_PREINSTALL_DISABLED": "true",
    "GF_PLUGINS_PLUGIN_ADMIN_ENABLED": "false",
    "GF_PLUGINS_PUBLIC_KEY_RETRIEVAL_DISABLED": "true",
    "GF_SECURITY_DISABLE_GRAVATAR": "true",
    "GF_SNAPSHOTS_EXTERNAL_ENABLED": "false",
}


def test_built_images_are_never_pulled() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, service in SERVICES.items():
        assert ("build" in service) == service["image"].startswith("taugate/")
        if "build" in service:
            assert service["pull_policy"] == "never"
            assert service["image"] == f"taugate/{service['build']['target']}:{project['version']}", name
    dockerfile = (ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert f"ARG VERSION={project['version']}\n" in dockerfile


def test_healthcheck_equals_dockerfile() -> None:
    dockerfile = (ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    asked = json.loads(dockerfile.partition("HEALTHCHECK")[2].partition("CMD ")[2].partition("\n")[0])
    assert SERVICES["service"]["healthcheck"]["test"] == ["CMD", *asked]


def test_mcp_server_is_optional() -> None:
    mcp = SERVICES["mcp"]
    assert mcp["profiles"] == ["mcp"]
    dockerfile = (ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    stage = dockerfile.partition("FROM runtime AS mcp\n")[2].partition("\nFROM ")[0]
    asked, *_ = re.findall(r"HEALTHCHECK .* CMD (\[.*\])", stage)
    assert mcp["healthcheck"]["test"] == ["CMD", *json.loads(asked)]
    (entry,) = re.findall(r"ENTRYPOINT (\[.*\])", stage)
    given = parser().parse_args([*json.loads(entry)[1:], *mcp["command"]])
    assert (given.transport, given.port) == ("http", 8765)
    assert given.url == "http://service:8000"
    assert set(mcp["environment"]) == {KEY_FILE}
    assert COMPOSE["secrets"][mcp["secrets"][0]["source"]]["file"] == "./secrets/app.key"
    assert int(mcp["stop_grace_period"].removesuffix("s")) > GRACE_SECONDS


def test_grafana_contacts_no_hosts() -> None:
    environment = SERVICES["grafana"]["environment"]
    assert {name: environment.get(name) for name in _GRAFANA_ASKS_NOTHING} == _GRAFANA_ASKS_NOTHING


def test_ports_are_published_on_loopback() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == []
    published = [port for service in OVERRIDE["services"].values() for port in service["ports"]]
    assert set(OVERRIDE["services"]) == {"service", "mcp", "postgres", "prometheus", "alertmanager", "grafana"}
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_only_the_service_reaches_redis() -> None:
    reaching = {name for name, service in SERVICES.items() if "cache" in service.get("networks", [])}
    assert reaching == {"service", "redis"}
    assert COMPOSE["networks"]["cache"]["internal"]


def test_engine_is_optional_with_secret_password() -> None:
    engine = SERVICES["postgres"]
    assert engine["profiles"] == ["engine"]
    assert engine["networks"] == ["engine"]
    assert COMPOSE["networks"]["engine"]["internal"]
    (secret,) = engine["secrets"]
    assert COMPOSE["secrets"][secret["source"]]["file"] == "./secrets/engine.password"
    user, database = engine["environment"]["POSTGRES_USER"], engine["environment"]["POSTGRES_DB"]
    reaching = {name for name, service in SERVICES.items() if "engine" in service.get("networks", [])}
    assert reaching == {"service", "calibrate", "postgres"}
    for name in ("service", "calibrate"):
        given = SERVICES[name]["environment"]
        assert given["TAUGATE_ENGINE_URL"] == f"${{TAUGATE_ENGINE_URL:-postgresql://{user}@postgres/{database}}}"
        assert given["TAUGATE_ENGINE_TOKEN_FILE"] == engine["environment"]["POSTGRES_PASSWORD_FILE"]
        assert secret in SERVICES[name]["secrets"]


def test_passwords_come_from_environment() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    passwords = re.findall(r"\$\{(\w+_PASSWORD):\?is not set, run sh deploy/compose/secrets\.sh\}", text)
    assert set(passwords) == {"REDIS_PASSWORD", "GRAFANA_PASSWORD"}
    assert len(passwords) == len(re.findall(r"PASSWORD}|PASSWORD:[^?\s]|PASSWORD:\?", text))


def test_only_jobs_write_releases() -> None:
    mounts = {name: service.get("volumes", []) for name, service in SERVICES.items()}
    assert {name for name, volumes in mounts.items() if "releases:/releases" in volumes} == JOBS
    assert {name for name, volumes in mounts.items() if "releases:/releases:ro" in volumes} == {"service"}
    assert {name for name, volumes in mounts.items() if any(volume.startswith("copies:") for volume in volumes)} == {
        "service"
    }, "a copy of signed releases is the service's alone"


def test_mounted_files_exist() -> None:
    sources = [
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if volume.startswith("./")
    ]
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_environment_contains_known_settings() -> None:
    lines = (ROOT / "deploy" / "compose" / "service.env").read_text(encoding="utf-8").splitlines()
    named = {line.split("=")[0] for line in lines if line and not line.startswith("#")}
    named |= set(SERVICES["service"]["environment"])
    assert named <= {value.name for value in VARIABLES.values()}


def test_allowed_hosts_include_compose_names() -> None:
    lines = (ROOT / "deploy" / "compose" / "service.env").read_text(encoding="utf-8").splitlines()
    hosts = next(line.split("=")[1].split(",") for line in lines if line.startswith("TAUGATE_ALLOWED_HOSTS="))
    scraped = yaml.safe_load((ROOT / "deploy" / "compose" / "prometheus.yml").read_text(encoding="utf-8"))
    (target,) = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    assert {"localhost", target.split(":")[0]} == set(hosts)


def test_grace_period_covers_shutdown() -> None:
    grace = int(SERVICES["service"]["stop_grace_period"].removesuffix("s"))
    assert (
        grace
        > VARIABLES["drain_seconds"].info.default + VARIABLES["drain_seconds"].options["shutdown_seconds"].info.default
    )


def test_compose_uses_same_prometheus_rules() -> None:
    paths = [ROOT / "deploy" / folder / "prometheus.yml" for folder in ("prometheus", "compose")]
    bare, inside = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths)
    assert inside["global"].pop("external_labels") == {"taugate_runbooks": "${TAUGATE_RUNBOOKS_URL}"}
    for field in ("global", "rule_files"):
        assert bare[field] == inside[field]
    assert bare["alerting"]["alert_relabel_configs"] == inside["alerting"]["alert_relabel_configs"]
    assert {item["job_name"] for item in bare["scrape_configs"]} <= {
        item["job_name"] for item in inside["scrape_configs"]
    }
    assert "./deploy/prometheus/rules:/etc/prometheus/rules:ro" in SERVICES["prometheus"]["volumes"]


def test_promtool_accepts_compose_configuration(tmp_path: Path) -> None:
    shutil.copy(ROOT / "deploy" / "compose" / "prometheus.yml", tmp_path)
    shutil.copytree(ROOT / "deploy" / "prometheus" / "rules", tmp_path / "rules")
    (tmp_path / "taugate.key").touch()  # promtool looks whether the file of a key is there
    config = tmp_path / "prometheus.yml"
    config.write_text(config.read_text(encoding="utf-8").replace("/run/secrets/taugate.key", "taugate.key"), "utf-8")
    done = subprocess.run(
        [require("promtool"), "check", "config", str(config)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_secrets_are_created_once_and_private(tmp_path: Path) -> None:
    script = tmp_path / "deploy" / "compose" / "secrets.sh"
    script.parent.mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "compose" / "secrets.sh", script)
    subprocess.run(["sh", str(script)], check=True, capture_output=True)
    content = (tmp_path / "secrets" / "keys.json").read_bytes()
    check_keys(parse_keys(content, "keys.json"), "keys.json")
    for name in ("app", "prometheus", "admin"):
        key = (tmp_path / "secrets" / f"{name}.key").read_bytes()
        assert len(key) > 40
        assert sha256(key).hexdigest().encode() in content
    assert (tmp_path / "secrets").stat().st_mode & 0o077 == 0
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0
    again = subprocess.run(["sh", str(script)], check=False, capture_output=True, text=True)
    assert again.returncode == 1
    assert "nothing was changed" in again.stderr
    assert (tmp_path / "secrets" / "keys.json").read_bytes() == content
