"""The alert rules: checked and tested by promtool, with runbooks and tests of both outcomes."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.prometheus_process import DEPLOY
from tests.servers import require

ROOT = DEPLOY.parent
RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
TESTS = sorted((DEPLOY / "prometheus" / "tests").glob("*.yml"))
ALERTS = {
    rule["alert"]: rule
    for path in RULES
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


def run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_configuration_and_rules() -> None:
    run(require("promtool"), "check", "config", DEPLOY / "prometheus" / "prometheus.yml")
    run(require("promtool"), "check", "rules", *RULES)


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
@pytest.mark.slow
def test_rules_pass_unit_tests(path: Path) -> None:
    run(require("promtool"), "test", "rules", path)


def test_amtool_routes_severities() -> None:
    config = DEPLOY / "alertmanager" / "alertmanager.yml"
    run(require("amtool"), "check-config", config)
    for severity, receiver in (("critical", "on-call"), ("warning", "day")):
        command = [
            require("amtool"),
            "config",
            "routes",
            "test",
            f"--config.file={config}",
            f"--verify.receivers={receiver}",
        ]
        for alert in ("TaugateX", "TaugateDrift"):
            run(*command, f"severity={severity}", f"alertname={alert}")


@pytest.mark.parametrize("alert", ALERTS)
def test_alerts_are_tested_both_ways(alert: str) -> None:
    tested = [
        bool(item["exp_alerts"])
        for path in TESTS
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]
        for item in group.get("alert_rule_test", [])
        if item["alertname"] == alert
    ]
    assert set(tested) == {True, False}


@pytest.mark.parametrize("alert", ALERTS)
def test_alerts_have_text_and_runbook(alert: str) -> None:
    rule = ALERTS[alert]
    severities = set(
        re.findall("critical|warning", rule["labels"]["severity"])
    )  # of TaugateDrift, a template with both
    assert rule["labels"]["severity"] in {"critical", "warning"} or alert == "TaugateDrift"
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    folder, name = rule["annotations"]["runbook_url"].rsplit("/", 1)
    assert (folder, name) == ('{{ or $externalLabels.taugate_runbooks "docs/runbooks" }}', f"{alert}.md")
    page = (ROOT / "docs" / "runbooks" / name).read_text(encoding="utf-8")
    assert alert in page
    headings = re.findall(r"^#+ (.*)$", page, flags=re.MULTILINE)
    assert headings == [alert, "Meaning", "Impact", "Urgency", "Diagnosis", "What to do", "When it is over"]
    urgency = page.split("## Urgency\n\n")[1].split("\n## ")[0]
    assert ("It can wait until morning" in urgency) == ("warning" in severities)
    assert ("Only a critical one cannot wait" in urgency) == (severities == {"critical", "warning"})
    assert "labels" in urgency or alert != "TaugateDrift", "who owns the labels"


def test_runbooks_belong_to_alerts() -> None:
    assert {path.stem for path in (ROOT / "docs" / "runbooks").glob("Taugate*.md")} == set(ALERTS)
