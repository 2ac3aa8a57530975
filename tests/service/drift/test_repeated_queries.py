"""Health checks and load tests: a few repeated queries, however unusual, raise no alarm."""

from pathlib import Path

from tests.prometheus_process import until
from tests.service.drift.traffic import (
    NO_ALARM,
    FastDriftService,
    by_signal,
    count_logged,
    foreign_queries,
    metrics,
    send,
    told,
)


def test_repeated_queries_raise_no_alarm(releases: Path, tmp_path: Path) -> None:
    log = tmp_path / "queries.jsonl"
    with FastDriftService(releases, TAUGATE_QUERY_LOG=str(log)) as service:
        service.ready()
        for asked in (foreign_queries(1) * 5000, foreign_queries(10, first=1) * 500):
            assert all(drift == NO_ALARM for drift in send(service, asked))
        until(lambda: count_logged(log) == 10_000)
        assert told(service) == NO_ALARM
        assert metrics(service)["blocks_total"] == 0
        assert set(by_signal(service, "alarm").values()) == {0}
        assert all(0 <= evidence < 1e-9 for evidence in by_signal(service, "evidence").values())
        send(service, foreign_queries(500, first=11))
        until(lambda: told(service)["alarm"])
