"""GET /release tells the alarms and the live overlap, so that a page without access to /metrics can show them."""

from pathlib import Path

from taugate.drift.rules import MIN_IN_WINDOW
from tests.prometheus_process import until
from tests.service.drift.traffic import NO_ALARM, Hurried, ordinary
from tests.service_process import ServiceProcess


def drift_of(service: ServiceProcess) -> dict:
    return service.http.get("/release").json()["drift"]


def test_it_is_what_the_gauges_show(releases: Path, sample: Path) -> None:
    with Hurried(releases) as service:
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


def test_it_is_null_where_nothing_is_watched(releases: Path) -> None:
    with ServiceProcess(releases, TAUGATE_DRIFT="false") as service:
        assert drift_of(service.ready()) is None
