"""Workers of one service without Redis share their alarms in a file."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from taugate.retrieval.reader import Release
from tests.prometheus_process import until
from tests.service.drift.traffic import (
    NO_ALARM,
    SIGNAL,
    FastDriftService,
    ask,
    by_signal,
    count_logged,
    foreign_queries,
    metrics,
    queries_until_alarm,
)
from tests.service.process.test_workers import pids

pytestmark = pytest.mark.slow


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "queries.jsonl"


@pytest.fixture
def workers(releases: Path, log: Path) -> Iterator[FastDriftService]:
    with FastDriftService(releases, forked=False, TAUGATE_WORKERS="2", TAUGATE_QUERY_LOG=str(log)) as service:
        service.ready()
        until(lambda: service.log().count('"ready"') == 2)
        yield service


@contextmanager
def only(worker: int, service: FastDriftService) -> Iterator[None]:
    """The others stand still, for less time than their supervisor bears."""
    others = [pid for pid in pids(service) if pid != worker]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def batch(service: FastDriftService, texts: list[str]) -> list[dict]:
    """On one connection of its own."""
    answer = httpx.post(f"http://127.0.0.1:{service.port}/search/batch", json={"queries": texts}, timeout=30)
    return [reply["drift"] for reply in answer.json()["responses"]]


def test_workers_raise_alarm_as_one_process(workers: FastDriftService, release: Release, log: Path) -> None:
    needed = queries_until_alarm(release)
    questions = foreign_queries(needed)
    both = pids(workers)
    assert len(both) == 2
    for start in range(0, needed - 1, 64):
        with only(both[start // 64 % 2], workers):
            replies = batch(workers, questions[start : min(start + 64, needed - 1)])
        assert replies == [NO_ALARM] * len(replies)
    until(lambda: count_logged(log) == needed - 1)
    assert set(by_signal(workers, "alarm").values()) == {0}
    assert metrics(workers)["shared"] == 1
    assert batch(workers, questions[-1:]) == [NO_ALARM]
    for worker in both:

        def says_so(worker: int = worker) -> bool:
            with only(worker, workers):
                return SIGNAL in ask(workers, "permit")["drift"]["signals"]

        until(says_so)
    assert by_signal(workers, "alarm")[SIGNAL] == 1
    assert metrics(workers)["blocks_total"] == 1
    assert metrics(workers)["shared"] == 1


def test_replacement_workers_take_over_alarm(workers: FastDriftService) -> None:
    for start in range(0, 640, 64):
        batch(workers, foreign_queries(64, first=start))
    # A worker that cannot lock the file in time tells the others with its next update; until then only it knows.
    until(lambda: by_signal(workers, "alarm")[SIGNAL] == 1 and metrics(workers)["shared"] == 1)
    before = pids(workers)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(pids(workers)) == 2 and not {*pids(workers)} & {*before})
    until(lambda: SIGNAL in ask(workers, "permit")["drift"]["signals"])
