"""Generates Grafana's alert rules from those of Prometheus, for installations that alert with Grafana."""

import re
from pathlib import Path
from typing import Any

import yaml

_FOLDER, _GROUP_SECONDS = "Taugate", "15s"
_HEAD = """# Generated from deploy/prometheus/rules by `make dashboards`; edit those rules instead of this file.
# Some alerts use series of taugate.recording.yml, so Prometheus must load that file even if Grafana sends the alerts.
"""
_INSTANT = {"instant": True, "range": False}
_SOURCE = "prometheus"  # uid of the data source in deploy/grafana/provisioning
_RUNBOOKS = '{{ or $externalLabels.taugate_runbooks "docs/runbooks" }}'  # Grafana's templates have no external labels
# The second number in an annotation: Prometheus queries it in the template, and Grafana beside the alert's expression.
_NAMES = "CD"  # of the further numbers in a summary
_QUERY = re.compile(r"printf \"(?P<series>[\w:]+)\{[^\"]*\" [^|]*\| query")


def provisioned(rules: Path) -> str:
    """Return the provisioning file for the alerts of a Prometheus rule file."""
    groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    document = {
        "apiVersion": 1,
        "groups": [
            {
                "orgId": 1,
                "name": group["name"],
                "folder": _FOLDER,
                "interval": _GROUP_SECONDS,
                "rules": [_rule(rule) for rule in group["rules"]],
            }
            for group in groups
        ],
    }
    written: str = yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)
    return _HEAD + written


def _rule(rule: dict[str, Any]) -> dict[str, Any]:
    annotations = {name: _in_grafana(text) for name, text in rule["annotations"].items()}
    # With the labels of the drift alert, in both directions: by these Grafana finds the value that belongs to an alert.
    other_numbers = [
        _data(name, _SOURCE, {"expr": _number(match["series"], directed="direction" in rule["expr"]), **_INSTANT})
        for name, match in zip(_NAMES, _QUERY.finditer(rule["annotations"]["summary"]), strict=False)
    ]
    return {
        "uid": rule["alert"],
        "title": rule["alert"],
        "condition": "B",
        "data": [
            _data("A", _SOURCE, {"expr": rule["expr"].strip(), **_INSTANT}),
            # For Prometheus an expression fires if any series exists, even with the value 0; for Grafana it would not.
            _data("B", "__expr__", {"type": "math", "expression": "is_number($A)"}),
            *other_numbers,
        ],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": rule.get("for", "0s"),
        "labels": rule["labels"],
        "annotations": annotations,
    }


def _number(series: str, *, directed: bool) -> str:
    if not directed:
        return f"max by (namespace, job) ({series})"
    return f"{_directed(series, 'higher')} or {_directed(series, 'lower')}"


def _directed(series: str, direction: str) -> str:
    return f'label_replace(max by (namespace, job, signal) ({series}), "direction", "{direction}", "", "")'


def _data(name: str, source: str, model: dict[str, Any]) -> dict[str, Any]:
    time_range = {"from": 600, "to": 0}
    return {"refId": name, "relativeTimeRange": time_range, "datasourceUid": source, "model": {"refId": name, **model}}


def _in_grafana(text: str) -> str:
    """Convert a template; in Grafana the value of a query is under the query's name."""
    names = iter(_NAMES)
    text = _QUERY.sub(lambda _: f"$values.{next(names)}", text.replace(_RUNBOOKS, "docs/runbooks"))
    return re.sub(r"\$value\b", "$values.A.Value", text.replace(". | first | value", ".Value"))
