"""What operators may read of the questions under an alarm: groups if the service keeps texts, and nothing otherwise."""

import json
from pathlib import Path

from tests.prometheus_process import until
from tests.service.access.files import entry
from tests.service.drift.traffic import FastDriftService, foreign_queries, ordinary, send, told

PATH = "/playground/new-questions"


def test_new_questions_under_alarm_are_grouped_for_operators(releases: Path, sample: Path, tmp_path: Path) -> None:
    keys = [entry("all", "tests", "metrics", "search"), entry("user", "user", "search")]
    environment = {"TAUGATE_QUERY_LOG": str(tmp_path / "log"), "TAUGATE_KEYS": json.dumps(keys)}
    environment["TAUGATE_QUERY_LOG_TEXTS"] = "true"
    with FastDriftService(releases, None, None, **environment) as service:
        service.http.headers["Authorization"] = "Bearer all"
        service.ready()
        send(service, ordinary(sample, 600))
        assert service.http.get(PATH).json() == {"questions": []}
        foreign = foreign_queries(800)
        send(service, foreign)
        until(lambda: told(service)["alarm"] and service.http.get(PATH).json()["questions"], 60)
        groups = service.http.get(PATH).json()["questions"]
        assert len(groups) <= 10
        assert groups[0]["question"] in foreign and groups[0]["count"] > 100
        refused = service.http.get(PATH, headers={"Authorization": "Bearer user"})
        assert refused.status_code == 403


def test_service_without_texts_has_no_new_questions(releases: Path, tmp_path: Path) -> None:
    with FastDriftService(releases, TAUGATE_QUERY_LOG=str(tmp_path / "log")) as service:
        service.ready()
        send(service, foreign_queries(800))
        until(lambda: told(service)["alarm"], 60)
        assert service.http.get(PATH).json() == {"questions": None}
