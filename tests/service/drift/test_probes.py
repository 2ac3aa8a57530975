"""Health checks and load tests: the same few queries, however odd and however often, are no drift."""

from pathlib import Path

from tests.prometheus_process import until
from tests.service.drift.traffic import NO_ALARM, Hurried, by_signal, foreign, metrics, send, told, weighed


def test_one_query_and_ten_are_none_five_thousand_times_and_distinct_ones_are(releases: Path, tmp_path: Path) -> None:
    log = tmp_path / "queries.jsonl"
    with Hurried(releases, TAUGATE_QUERY_LOG=str(log)) as service:
        service.ready()
        for asked in (foreign(1) * 5000, foreign(10, first=1) * 500):
            assert all(drift == NO_ALARM for drift in send(service, asked))
        until(lambda: weighed(log) == 10_000)
        assert told(service) == NO_ALARM
        assert metrics(service)["blocks_total"] == 0
        assert set(by_signal(service, "alarm").values()) == {0}
        assert all(0 <= evidence < 1e-9 for evidence in by_signal(service, "evidence").values())
        send(service, foreign(500, first=11))
        until(lambda: told(service)["alarm"])
