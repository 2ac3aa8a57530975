"""Prometheus and Grafana get the files of deploy/, byte for byte but for links and the installation's own targets."""

import json
from pathlib import Path

import pytest
import yaml

from tests.helm.rendered import CHART, KEYS, ROOT, VARIANTS, at, render

RULES = sorted((ROOT / "deploy" / "prometheus" / "rules").glob("*.yml"))
BOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
ALL = render(VARIANTS["all"])


def test_no_monitoring_by_default() -> None:
    rendered = render(KEYS)
    assert rendered.of("ServiceMonitor") == rendered.of("PrometheusRule") == []
    assert [item["metadata"]["name"] for item in rendered.of("ConfigMap")] == ["shop-taugate"]


def test_monitoring_files_link_to_deploy() -> None:
    for folder, source in (("rules", RULES[0].parent), ("dashboards", BOARDS[0].parent)):
        assert (CHART / "files" / folder).is_symlink()
        assert (CHART / "files" / folder).resolve() == source


def rules(path: Path, job: str = "taugate") -> str:
    """Return a rule file with the targets of the rendered installation."""
    text = path.read_text(encoding="utf-8")
    return text.replace('up{job="taugate"}', f'up{{namespace="team",job="{job}"}}')


def specs() -> list[str]:
    """The text of each PrometheusRule after `spec:`, less the indentation."""
    documents = ALL.texts["monitoring/prometheusrule.yaml"].split("---\n")[1:]
    return ["\n".join(line[2:] for line in document.split("\nspec:\n")[1].split("\n")) for document in documents]


@pytest.mark.parametrize(("path", "text"), list(zip(RULES, specs(), strict=True)), ids=[rule.stem for rule in RULES])
def test_rendered_rules_equal_file(path: Path, text: str) -> None:
    content = rules(path)
    assert text.startswith(content)
    assert text[len(content) :].strip() == ""


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_parsed_rules_equal_file(path: Path) -> None:
    name = path.stem.removeprefix("taugate.")
    rule = ALL.one("PrometheusRule", f"-{name}")
    assert rule["spec"] == yaml.safe_load(rules(path))
    assert rule["metadata"]["labels"]["release"] == "kube-prometheus-stack"


def test_rules_about_targets_name_the_configured_job() -> None:
    rendered = render(VARIANTS["all"], at("metrics.serviceMonitor.job", "search-eu"))
    for path in RULES:
        expected = yaml.safe_load(rules(path, "search-eu"))
        assert rendered.one("PrometheusRule", f"-{path.stem.removeprefix('taugate.')}")["spec"] == expected


@pytest.mark.parametrize("url", ["https://wiki.example.com/taugate/runbooks", "http://wiki/runbooks/"])
def test_runbooks_link_to_configured_url(url: str) -> None:
    rendered = render(VARIANTS["all"], at("metrics.prometheusRule.runbooksUrl", url))
    linked = 0
    for path in RULES:
        expected = yaml.safe_load(rules(path))
        for alert in (rule for group in expected["groups"] for rule in group["rules"] if "alert" in rule):
            alert["annotations"]["runbook_url"] = f"{url.rstrip('/')}/{alert['alert']}.md"
            linked += 1
        assert rendered.one("PrometheusRule", f"-{path.stem.removeprefix('taugate.')}")["spec"] == expected
    assert linked > 10


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_rendered_dashboards_equal_file(path: Path) -> None:
    board = ALL.one("ConfigMap", f"-dashboard-{path.stem}")
    assert board["data"] == {f"taugate-{path.name}": path.read_text(encoding="utf-8")}
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert board["metadata"]["annotations"] == {"grafana_folder": "taugate"}


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_dashboards_link_to_configured_urls(path: Path) -> None:
    runbooks, playground = "https://wiki.example.com/runbooks", "https://search.example.com/playground"
    rendered = render(
        VARIANTS["all"],
        at("metrics.prometheusRule.runbooksUrl", f"{runbooks}/"),
        at("metrics.dashboards.playgroundUrl", playground),
    )
    (text,) = rendered.one("ConfigMap", f"-dashboard-{path.stem}")["data"].values()
    links = {link["title"]: link.get("url") for link in json.loads(text)["links"]}
    assert (links["Runbooks"], links["Playground"]) == (f"{runbooks}/index.md", playground)
    assert "127.0.0.1" not in text


def test_prometheus_scrapes_with_key_and_job() -> None:
    monitor = ALL.one("ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"], endpoint["interval"]) == ("http", "/metrics", "15s")
    credentials = {"name": "taugate-metrics-key", "key": "key"}
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": credentials}
    (job,) = endpoint["relabelings"]
    assert job["targetLabel"] == "job"
    assert f'up{{job="{job["replacement"]}"}}' in RULES[0].read_text(encoding="utf-8")
    labels = ALL.one("Service")["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_pod_monitor_scrapes_the_same() -> None:
    rendered = render(VARIANTS["all"], at("metrics.serviceMonitor.kind", "PodMonitor"))
    assert rendered.of("ServiceMonitor") == []
    pods, service = rendered.one("PodMonitor")["spec"], ALL.one("ServiceMonitor")["spec"]
    assert (pods["selector"], pods["podMetricsEndpoints"]) == (service["selector"], service["endpoints"])
    labels = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert pods["selector"]["matchLabels"].items() <= labels.items()


def test_prometheus_needs_no_key_without_keys() -> None:
    rendered = render(at("settings.allow_unauthenticated", True), at("metrics.serviceMonitor.enabled", True))
    assert "authorization" not in rendered.one("ServiceMonitor")["spec"]["endpoints"][0]
