"""GET /release shows alarms and live overlap, for pages without access to /metrics."""

from pathlib import Path

import pytest

from taugate.drift.signals import MIN_IN_WINDOW
from tests.prometheus_process import until
from tests.service.drift.traffic import NO_ALARM, FastDriftService, foreign_queries, ordinary
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess


def drift_of(service: ServiceProcess) -> dict:
    return service.http.get("/release").json()["drift"]


def test_release_shows_overlap_of_gauges(releases: Path, sample: Path) -> None:
    with FastDriftService(releases) as service:
        service.ready()
        nothing = {"coe": None, "coe_expected": None, "roe": None}
        assert drift_of(service) == NO_ALARM | nothing
        queries = ordinary(sample, 2 * MIN_IN_WINDOW)
        for first in range(0, len(queries), 50):
            assert service.http.post("/search/batch", json={"queries": queries[first : first + 50]}).status_code == 200
        until(lambda: drift_of(service)["roe"] is not None)
        told, shown = drift_of(service), service.http.get("/metrics").text
    assert told["coe"] is None, "nothing was judged"
    for name in ("coe_expected", "roe"):
        assert 0 <= told[name]["lower"] <= told[name]["mean"] <= told[name]["upper"] <= 1
        assert f"taugate_{name} {told[name]['mean']}\n" in shown


def test_shares_are_exported_beside_those_at_calibration(releases: Path, sample: Path) -> None:
    with FastDriftService(releases) as service:
        calibrated = scrape(service.ready())
        assert not any(name.startswith("taugate_drift_share{") for name in calibrated), "no traffic yet"
        queries = [*ordinary(sample, 30), *foreign_queries(20)]
        replies = [service.http.post("/search", json={"query": query}).json() for query in queries]
        empty = pytest.approx(sum(not reply["results"] for reply in replies) / len(replies))
        assert empty != 0
        # The first figures may be those of the first replies.
        until(lambda: scrape(service).get("taugate_drift_share{empty_responses}") == empty)
        live = scrape(service)
    assert 0 <= calibrated["taugate_drift_share_reference{empty_responses}"] < 0.5
    for figures in (live, calibrated):
        assert 0 < figures["taugate_drift_share_reference{topk_similarity}"] < 1, "the mean best similarity"
    assert 0 < live["taugate_drift_share{topk_similarity}"] < 1


def test_overlap_is_null_without_drift(releases: Path) -> None:
    with ServiceProcess(releases, TAUGATE_DRIFT="false") as service:
        assert drift_of(service.ready()) is None
