"""Dashboards and Grafana's alerts: generated files are current, and a real Prometheus answers every query."""

import itertools
import json
import math
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.grafana.generate import generated
from taugate.registry import promotion
from taugate.registry.catalog import find
from tests.deploy.test_rules import ALERTS, RULES
from tests.prometheus_process import DEPLOY, Prometheus, until
from tests.release.clones import clone
from tests.service.drift.traffic import FastDriftService
from tests.service_process import ServiceProcess

GRAFANA = DEPLOY / "grafana"
BOARDS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (GRAFANA / "dashboards").glob("*.json")}
# Absent until Redis, an engine or keys are configured, replies are judged, or a request is refused.
NOT_HERE = ("taugate_redis_up", "taugate_engine_up", 'set="correct"', "taugate_key", "taugate_refused", "taugate_live")


def panels(board: dict) -> list[dict]:
    """All but the headings of rows, those in a row as well."""
    inner = [panel for item in board["panels"] for panel in (item, *item.get("panels", []))]
    return [panel for panel in inner if panel["type"] != "row"]


STATS = {panel["title"]: panel for board in BOARDS.values() for panel in panels(board) if panel["type"] == "stat"}
QUERIES = [
    pytest.param(target["expr"], id=f"{name}: {panel['title']} {position}")
    for name, board in BOARDS.items()
    for panel in panels(board)
    for position, target in enumerate(panel["targets"])
]


@pytest.fixture(scope="module")
def service(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """One that tries another release beside its own: a copy of it under another id."""
    folder = shutil.copytree(releases, tmp_path_factory.mktemp("shadowed") / "releases")
    promotion.shadow(folder, clone(find(folder), minute=0))
    with FastDriftService(folder, TAUGATE_SHADOW_SHARE="1") as process:
        yield process.ready()


@pytest.fixture(scope="module")
def prometheus(service: ServiceProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One that has watched a service long enough for rates, and for the watch to have had its first look."""
    with Prometheus(tmp_path_factory.mktemp("prometheus"), [service.port]) as server:
        until(lambda: server.query("up == 1"))
        for start in range(3):
            for number in range(60):
                query = {"query": f"What does a permit cost in year {start * 60 + number}?"}
                reply = service.http.post("/search", json=query).json()
                if reply["results"]:
                    judged = {"query_id": reply["query_id"], "document_id": reply["results"][0]["id"], "relevant": True}
                    service.http.post("/feedback", json=judged)
            time.sleep(1)
        until(lambda: server.query("taugate_roe >= 0"))
        until(lambda: server.query("job:taugate_empty:ratio_rate5m"))
        until(lambda: server.query("job:taugate_drift_alarm:pooled"))
        until(lambda: server.query("job:taugate_overlap_above:ratio_rate1h"))
        until(lambda: server.query("job:taugate_available:ratio_rate28d and job:taugate_judged:ratio_rate7d"))
        yield server


def of_here(expression: str) -> str:
    """Return the expression for this Prometheus, whose targets have no namespace."""
    return expression.replace("$namespace", ".*").replace("$job", "taugate")


def test_committed_dashboards_are_current() -> None:
    for path, content in generated().items():
        assert path.read_text(encoding="utf-8") == content, f"make dashboards: {path.name} is not up to date"


@pytest.mark.parametrize("expression", QUERIES)
@pytest.mark.slow
def test_panel_queries_return_series(prometheus: Prometheus, expression: str) -> None:
    asked = of_here(expression.replace("$__rate_interval", "1m"))
    assert "$" not in asked
    series = prometheus.query(asked)
    assert series or any(name in expression for name in NOT_HERE), f"{asked}: no series"


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.slow
def test_event_queries_are_accepted(prometheus: Prometheus, name: str) -> None:
    events = {event["name"]: event for event in BOARDS[name]["annotations"]["list"]}
    assert set(events) == {"Promotions", "Reloads", "Alerts"}
    for event in events.values():
        names = set(re.findall(r"{{(\w+)}}", event["titleFormat"]))
        assert names
        assert all(names - {"namespace"} <= item["metric"].keys() for item in prometheus.query(of_here(event["expr"])))


@pytest.mark.parametrize("name", BOARDS)
def test_boards_have_summary_and_links(name: str) -> None:
    board = BOARDS[name]
    assert board["panels"][0]["title"] == "Summary"
    assert board["panels"][1]["title"] == "Alerts firing"
    assert {link["title"] for link in board["links"]} == {"Dashboards", "Runbooks", "Playground"}
    for panel in panels(board):
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        assert "unit" in defaults or panel["type"] == "state-timeline", panel["title"]
        if panel["type"] == "timeseries":
            assert panel["options"]["legend"]["calcs"] == ["min", "max"]
            assert "min" in defaults or panel["title"].startswith(("Similarity", "τ")), panel["title"]


def first_row(name: str) -> list[dict]:
    """The panels between the first heading of a row and the second."""
    shown = iter(BOARDS[name]["panels"][1:])
    return [*itertools.takewhile(lambda panel: panel["type"] != "row", shown)]


@pytest.mark.parametrize("measure", ["COE, from feedback", "COE expected", "ROE"])
def test_overlaps_are_in_first_row_with_intervals(measure: str) -> None:
    (panel,) = (panel for panel in first_row("drift") if panel["title"].partition(":")[0] == measure)
    assert panel["title"].endswith(", not the quality of answers")
    filled = {
        override["matcher"]["options"]: {item["id"]: item["value"] for item in override["properties"]}
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["id"] == "byName"
    }
    legends = {target["legendFormat"].partition(" ")[0] for target in panel["targets"]}
    for side in ("live", "calibration"):
        assert side in legends
        assert filled[f"{side} upper"]["custom.fillBelowTo"] == f"{side} lower"
        assert filled[f"{side} upper"]["custom.fillOpacity"] > 0


@pytest.mark.parametrize(
    ("title", "alert"),
    [
        ("Errors and refusals", "TaugateErrors"),
        ("Errors and refusals", "TaugateOverloaded"),
        ("Queries not analyzed", "TaugateDriftObservationsLost"),
    ],
)
def test_limit_lines_equal_alerts(title: str, alert: str) -> None:
    *_, (burn, share) = re.findall(r"job:\S+ > (?:([\d.]+) \* )?([\d.]+)", ALERTS[alert]["expr"])
    assert round(float(burn or 1) * float(share), 6) in limits(title)


@pytest.mark.parametrize("alert", ["TaugateErrors", "TaugateLatency", "TaugateOverloaded"])
def test_burn_of_budgets_is_that_of_alerts(alert: str) -> None:
    burns = re.findall(r"(job:\w+:ratio_rate)\w+ > ([\d.]+) \* ([\d.]+)", ALERTS[alert]["expr"])
    ((record, budget),) = {(record, budget) for record, _, budget in burns}
    assert {float(burn) for _, burn, _ in burns} == limits("Budget burnt")
    (panel,) = (panel for panel in panels(BOARDS["serving"]) if panel["title"] == "Budget burnt")
    assert f"{record}1h{{" in str(panel["targets"])
    assert any(record in target["expr"] and target["expr"].endswith(f"/ {budget}") for target in panel["targets"])


def limits(title: str) -> set[float]:
    """The dashed lines of a panel."""
    (panel,) = (panel for board in BOARDS.values() for panel in panels(board) if panel["title"] == title)
    assert panel["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"]["mode"] == "dashed"
    return {step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"] if step["value"]}


def test_first_row_of_serving_shows_objectives() -> None:
    shown = {panel["title"]: panel["targets"][0]["expr"] for panel in first_row("serving")}
    objectives = (
        "available:ratio_rate28d",
        "fast_searches:ratio_rate28d",
        "calibration_age_seconds:max",
        "judged:ratio_rate7d",
    )
    for objective in objectives:
        assert any(f"job:taugate_{objective}" in expression for expression in shown.values())


def test_runbooks_open_at_address_of_compose(prometheus: Prometheus) -> None:
    compose = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text(encoding="utf-8"))
    configured = compose["services"]["prometheus"]["environment"]["TAUGATE_RUNBOOKS_URL"]
    path = re.search(r":-http://127\.0\.0\.1:9090(/\S+)}", configured)
    assert path is not None
    for name in ("index", *ALERTS):
        page = prometheus.http.get(f"{path[1]}/{name}.md")
        assert (page.status_code, page.text.startswith("# ")) == (200, True)


def test_panels_have_descriptions() -> None:
    for board in BOARDS.values():
        titles = [panel["title"] for panel in panels(board)]
        assert len(titles) == len(set(titles))
        for panel in panels(board):
            assert panel["description"].endswith("."), panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"


def steps(title: str) -> list[tuple[float, str]]:
    """The colours of a number, each with the value that it begins at."""
    thresholds = STATS[title]["fieldConfig"]["defaults"]["thresholds"]
    assert thresholds["mode"] == "absolute"
    return [(-math.inf if item["value"] is None else item["value"], item["color"]) for item in thresholds["steps"]]


@pytest.mark.parametrize("title", STATS)
def test_number_panels_define_colours(title: str) -> None:
    """Grafana shows numbers from 80 on in red if a panel does not define colours."""
    values, colours = zip(*steps(title), strict=True)
    assert values[0] == -math.inf
    assert list(values) == sorted(set(values))
    assert set(colours) <= {"green", "yellow", "red", "text"}
    assert "color" not in STATS[title]["fieldConfig"]["defaults"]  # in which case it would be of something else
    for mapping in STATS[title]["fieldConfig"]["defaults"].get("mappings", []):
        assert not any("color" in value for value in mapping["options"].values())


@pytest.mark.parametrize(
    ("title", "value", "colour"),
    [
        ("Loaded", 1.8e12, "text"),
        ("Redis", 0, "red"),
        ("Redis", 1, "green"),
        ("Golden queries last sent", 300, "green"),
        ("Golden queries last sent", 901, "red"),
        ("Not analyzed", 0, "green"),
        ("Not analyzed", 2, "yellow"),
        ("Alerts firing", 0, "green"),
        ("Alerts firing", 1, "red"),
        ("Errors", 0.02, "red"),
        ("Available", 0.997, "red"),
        ("Available", 0.998, "green"),
        ("Calibrated", 30 * 86400, "green"),
        ("Calibrated", 36 * 86400, "red"),
        ("Judged", 0.0, "yellow"),
        ("Next key expiry", -1, "red"),
        ("Next key expiry", 700_000, "green"),
        ("Queries in a block", 200, "text"),
        ("Drift baseline", -1, "red"),
        ("Drift baseline", 0, "text"),
        ("Drift baseline", 1, "green"),
        ("Shared evidence", 0, "text"),
        ("Shared evidence", 1, "green"),
    ],
)
def test_number_panel_colours_match_values(title: str, value: float, colour: str) -> None:
    assert [each for start, each in steps(title) if start <= value][-1] == colour


def test_drift_metrics_are_on_panels(service: ServiceProcess) -> None:
    names = set(re.findall(r"^# TYPE (taugate_\w+)", service.http.get("/metrics").text, flags=re.MULTILINE))
    shown = " ".join(str(target) for target in QUERIES)
    shown += "".join(path.read_text(encoding="utf-8") for path in RULES)  # panels show what is recorded as well
    assert {name for name in names if name.removesuffix("_total") not in shown} == set()


def test_grafana_has_all_alerts() -> None:
    document = yaml.safe_load((GRAFANA / "provisioning" / "alerting" / "taugate.yml").read_text(encoding="utf-8"))
    rules = {rule["title"]: rule for group in document["groups"] for rule in group["rules"]}
    assert set(rules) == set(ALERTS)
    for name, rule in rules.items():
        source = ALERTS[name]
        assert rule["data"][0]["model"]["expr"] == source["expr"].strip()
        assert (rule["for"], rule["labels"]) == (source.get("for", "0s"), source["labels"])
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"
        assert not re.search(r"\$value\b|\$externalLabels|\| query\b", str(rule["annotations"]))
        sources = {item["refId"] for item in rule["data"]}
        assert {"A", "B", *re.findall(r"\$values\.(\w)\b", str(rule["annotations"]))} == sources


def test_replica_exports_under_500_series(service: ServiceProcess, prometheus: Prometheus) -> None:
    """With every route, status and outcome that it has had by now."""
    lines = [line for line in service.http.get("/metrics").text.splitlines() if not line.startswith("#")]
    assert 200 < len(lines) < 500
