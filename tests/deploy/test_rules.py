"""The alert rules: checked and tested by Prometheus's own tool, and each with a runbook and both kinds of test."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.prometheus_process import DEPLOY

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


def test_promtool_accepts_the_configuration_and_the_rules() -> None:
    run("promtool", "check", "config", DEPLOY / "prometheus" / "prometheus.yml")
    run("promtool", "check", "rules", *RULES)


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_the_rules_pass_their_unit_tests(path: Path) -> None:
    run("promtool", "test", "rules", path)


def test_amtool_accepts_the_routes_and_sends_each_severity_where_it_belongs() -> None:
    config = DEPLOY / "alertmanager" / "alertmanager.yml"
    run("amtool", "check-config", config)
    for severity, receiver in (("critical", "on-call"), ("warning", "day")):
        command = ["amtool", "config", "routes", "test", f"--config.file={config}", f"--verify.receivers={receiver}"]
        run(*command, f"severity={severity}", "alertname=TaugateX")


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_tested_not_yet_and_firing(alert: str) -> None:
    tested = [
        bool(each["exp_alerts"])
        for path in TESTS
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]
        for each in group.get("alert_rule_test", [])
        if each["alertname"] == alert
    ]
    assert set(tested) == {True, False}


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_says_what_is_the_matter_and_what_to_do(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    runbook = ROOT / rule["annotations"]["runbook_url"]
    assert runbook.name == f"{alert}.md"
    headings = re.findall(r"^#+ (.*)$", runbook.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings == [alert, "Meaning", "Impact", "Diagnosis", "What to do", "When it is over"]


def test_each_runbook_is_of_an_alert() -> None:
    assert {path.stem for path in (ROOT / "docs" / "runbooks").glob("Taugate*.md")} == set(ALERTS)
