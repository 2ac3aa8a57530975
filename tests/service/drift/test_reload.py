"""Alarms at a reload: another release starts without alarms, and the same release keeps them.

The tests share a service and depend on their order.
"""

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from taugate.registry.catalog import find
from tests.pace import at_most
from tests.prometheus_process import until
from tests.redis_process import RedisProcess
from tests.release.clones import clone
from tests.service.drift.traffic import (
    NO_ALARM,
    SIGNAL,
    Reloading,
    ask,
    by_signal,
    count_logged,
    foreign_queries,
    ordinary,
    send,
)

KINDS = ["alone", "with Redis", "in workers"]


class Served(NamedTuple):
    """A service of a release, and of a second one that is the first under another id, with its query log."""

    service: Reloading
    first: str
    second: str
    log: Path

    def reload(self, release: str) -> str:
        """Promote it, and have the service look; what came of it."""
        status = self.service.reload(release)
        until(lambda: {ask(self.service, "permit")["release"] for _ in range(8)} == {release})  # in every worker
        return status

    def looks(self, questions: list[str]) -> None:
        """Whoever answers has weighed one or another of these, which were not asked before."""
        before = count_logged(self.log)
        for question in questions:
            ask(self.service, question)
        until(lambda: count_logged(self.log) >= before + len(questions))

    def says(self) -> list[dict]:
        """On some connections."""
        return [ask(self.service, "permit")["drift"] for _ in range(8)]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module", params=KINDS)
def served(
    request: pytest.FixtureRequest, releases: Path, redis: RedisProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """In which there is an alarm."""
    settings = {"with Redis": {"TAUGATE_REDIS_URL": redis.url}, "in workers": {"TAUGATE_WORKERS": "2"}}
    own = tmp_path_factory.mktemp("own")
    folder = shutil.copytree(releases, own / "releases")
    first, log = find(folder).name, own / "queries.jsonl"
    second = clone(find(folder), minute=0)
    with Reloading(folder, TAUGATE_QUERY_LOG=str(log), **settings.get(request.param, {})) as service:
        send(service.ready(), foreign_queries(500))
        until(lambda: all(SIGNAL in ask(service, "permit")["drift"]["signals"] for _ in range(8)))  # in every worker
        yield Served(service, first, second, log)


@pytest.mark.slow
def test_reloading_same_release_keeps_alarms(served: Served) -> None:
    before = by_signal(served.service, "evidence")
    assert before[SIGNAL] >= 1
    assert served.reload(served.first) == "unchanged"
    assert all(SIGNAL in drift["signals"] for drift in served.says())
    assert by_signal(served.service, "evidence")[SIGNAL] >= before[SIGNAL]


@pytest.mark.slow
def test_new_release_starts_without_alarms(served: Served, sample: Path) -> None:
    assert served.reload(served.second) == "loaded"
    assert served.says() == [NO_ALARM] * 8
    served.looks(ordinary(sample, 20))
    assert served.says() == [NO_ALARM] * 8
    until(lambda: by_signal(served.service, "evidence")[SIGNAL] < 0.1)  # a worker writes its gauges on its own time
    assert by_signal(served.service, "alarm")[SIGNAL] == 0


@pytest.mark.slow
def test_returning_release_starts_without_alarms(served: Served, sample: Path) -> None:
    assert served.reload(served.first) == "loaded"
    assert served.says() == [NO_ALARM] * 8
    served.looks(ordinary(sample, 20, first=20))
    assert served.says() == [NO_ALARM] * 8
    until(lambda: by_signal(served.service, "evidence")[SIGNAL] < 0.1)  # a worker writes its gauges on its own time


@pytest.mark.slow
def test_returning_release_raises_alarm_again(served: Served) -> None:
    send(served.service, foreign_queries(700, first=1000))
    until(lambda: all(SIGNAL in drift["signals"] for drift in served.says()))
    assert served.service.stop()[0] == 0


class AtItsOwnPace(Reloading):
    """One that does not look so often that it knows already what becomes of Redis."""

    module = "taugate"


def test_hung_redis_delays_no_request_at_reload(releases: Path, redis: RedisProcess, tmp_path: Path) -> None:
    folder = shutil.copytree(releases, tmp_path / "releases")
    second = clone(find(folder), minute=0)
    slowest, done = [0.0], threading.Event()

    def ask_on() -> None:
        while not done.is_set():
            began = time.monotonic()
            httpx.get(f"http://127.0.0.1:{service.port}/livez", timeout=30).raise_for_status()
            slowest.append(time.monotonic() - began)

    with AtItsOwnPace(folder, TAUGATE_REDIS_URL=redis.url) as service:
        service.ready()
        redis.pause()
        try:
            client = threading.Thread(target=ask_on)
            client.start()
            assert service.reload(second) == "loaded"
            until(lambda: '"previous release closed"' in service.log())
        finally:
            redis.resume()
            done.set()
            client.join()
        assert ask(service, "permit")["release"] == second
    assert len(slowest) > 10
    assert max(slowest) < at_most(0.7)  # a Redis that does not answer is given a second
