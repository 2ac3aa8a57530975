"""What a real Alertmanager with the committed routes sends: one notification for one shift."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.test_rules import ALERTS
from tests.loopback import LoopbackHTTPServer
from tests.prometheus_process import Alertmanager, until

pytestmark = pytest.mark.slow
_WAIT_SECONDS = 2  # `group_wait` of all routes here
DRIFT = ("topk_similarity", "roe", "dropped_share")
Notification = tuple[str, str, list[str]]  # receiver, job, sorted names of the alerts, or signals of TaugateDrift


class Inbox(LoopbackHTTPServer):
    """Both receivers of the configuration."""

    def __init__(self) -> None:
        self.notifications: list[Notification] = []
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                names = sorted(labels.get("signal", labels["alertname"]) for labels in labels_of(content))
                inbox.notifications.append((content["receiver"], content["groupLabels"]["job"], names))
                self.send_response(200)
                self.end_headers()

        super().__init__(Handler)


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with Inbox() as server:
        yield server


@pytest.fixture
def alertmanager(inbox: Inbox, tmp_path: Path) -> Iterator[Alertmanager]:
    wait = f"{_WAIT_SECONDS}s"
    with Alertmanager(tmp_path, {"http://127.0.0.1:9095": inbox.url, "2m": wait, "10s": wait}) as server:
        yield server


def labels_of(content: dict[str, Any]) -> list[dict[str, str]]:
    return [alert["labels"] for alert in content["alerts"]]


def fire(alertmanager: Alertmanager, job: str, *names: str) -> None:
    """Send alerts by name, or those of TaugateDrift by signal."""
    alerts = []
    for name in names:
        severity = "critical" if name == "empty_responses" else "warning"
        drift = {"alertname": "TaugateDrift", "signal": name, "severity": severity}
        labels = {"alertname": name, **ALERTS[name]["labels"]} if name in ALERTS else drift
        alerts.append({"labels": {"job": job, **labels}})
    assert alertmanager.http.post("/api/v2/alerts", json=alerts).status_code == 200


def test_one_shift_sends_one_notification(alertmanager: Alertmanager, inbox: Inbox) -> None:
    for name in DRIFT:  # one after the other, as evidence for them grows
        fire(alertmanager, "taugate", name)
    fire(alertmanager, "other", DRIFT[0])
    until(lambda: len(inbox.notifications) == 2)
    time.sleep(_WAIT_SECONDS)  # in which another group would have been sent
    assert sorted(inbox.notifications) == [("day", "other", [DRIFT[0]]), ("day", "taugate", sorted(DRIFT))]


def test_more_empty_replies_page_instead_of_warnings(alertmanager: Alertmanager, inbox: Inbox) -> None:
    fire(alertmanager, "taugate", *DRIFT, "empty_responses")
    until(lambda: bool(inbox.notifications))
    time.sleep(_WAIT_SECONDS)  # in which another group would have been sent
    assert inbox.notifications == [("on-call", "taugate", ["empty_responses"])]


def test_alerts_without_drift_stay_separate(alertmanager: Alertmanager, inbox: Inbox) -> None:
    fire(alertmanager, "taugate", "TaugateLatency", "TaugateKeyExpiring", "TaugateTargetsMissing")
    until(lambda: len(inbox.notifications) == 3)
    assert sorted(inbox.notifications) == [
        ("day", "taugate", ["TaugateKeyExpiring"]),
        ("day", "taugate", ["TaugateLatency"]),
        ("on-call", "taugate", ["TaugateTargetsMissing"]),
    ]
