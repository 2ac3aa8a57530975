"""Replicas on one Redis agree on alarms, and continue without Redis.

The tests share three replicas and depend on their order.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.retrieval.reader import Release
from tests.prometheus_process import until
from tests.redis_process import RedisProcess
from tests.service.drift.traffic import (
    NO_ALARM,
    SIGNAL,
    FastDriftService,
    by_signal,
    foreign_queries,
    metrics,
    observed,
    queries_until_alarm,
    send,
    told,
    watching,
)

STATE = "taugate:drift:*:state:*"

pytestmark = pytest.mark.slow  # each test continues where the one before it ended


class Deployment:
    """A Redis that can be killed and started again, and replicas that use it."""

    def __init__(self, releases: Path, folder: Path) -> None:
        self._releases, self._folder = releases, folder
        self.redis = RedisProcess(folder).__enter__()
        self.replicas = [self.new() for _ in range(3)]

    def new(self, **settings: str) -> FastDriftService:
        shared = {"TAUGATE_REDIS_URL": self.redis.url, "TAUGATE_REDIS_TIMEOUT_MS": "500"}
        return FastDriftService(self._releases, **shared, **settings)

    def restart_redis(self) -> None:
        """With nothing in it."""
        self.redis = RedisProcess(self._folder, self.redis.port).__enter__()

    def states(self) -> dict[bytes, bytes | None]:
        return {key: self.redis.client.get(key) for key in self.redis.client.scan_iter(STATE)}

    def all_are(self, name: str, value: float) -> bool:
        return all(metrics(each)[name] == value for each in self.replicas)

    def agree(self) -> bool:
        first, *others = (by_signal(each, "evidence") for each in self.replicas)
        return all(other == first for other in others)


@pytest.fixture(scope="module")
def deployment(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    running = Deployment(releases, tmp_path_factory.mktemp("redis"))
    for each in running.replicas:
        each.ready()
    yield running
    for each in running.replicas:
        each.__exit__(None, None, None)
    running.redis.__exit__(None, None, None)


def test_replicas_raise_alarm_as_one_process(deployment: Deployment, release: Release) -> None:
    needed = queries_until_alarm(release)
    questions = foreign_queries(needed)
    for number, each in enumerate(deployment.replicas):
        send(each, questions[number:-1:3])
    alone = watching(release)
    alone.update(observed(release, questions[:-1]))
    (evidence,) = (alarm.share_of_threshold for alarm in alone.alarms if alarm.signal == SIGNAL)
    for each in deployment.replicas:
        until(lambda each=each: by_signal(each, "evidence")[SIGNAL] == pytest.approx(evidence, abs=1e-9))
        assert set(by_signal(each, "alarm").values()) == {0}
    assert evidence < 1
    assert send(deployment.replicas[2], questions[-1:]) == [NO_ALARM]
    for each in deployment.replicas:
        until(lambda each=each: by_signal(each, "alarm")[SIGNAL] == 1)
        assert SIGNAL in told(each)["signals"]


def test_replicas_agree_on_alarm(deployment: Deployment) -> None:
    until(deployment.agree)
    assert by_signal(deployment.replicas[0], "evidence")[SIGNAL] >= 1
    assert deployment.all_are("shared", 1)
    assert deployment.all_are("block_queries", 200)
    assert sum(metrics(each)["blocks_total"] for each in deployment.replicas) == 1
    assert len(deployment.states()) == 1


def test_restarted_replica_takes_over_alarm(deployment: Deployment) -> None:
    restarted = deployment.replicas[0]
    restarted.stop()
    restarted.__exit__(None, None, None)
    deployment.replicas[0] = deployment.new()
    with deployment.new(TAUGATE_DRIFT_SMALLEST_EFFECT="0.2") as other:
        until(lambda: told(deployment.replicas[0].ready())["alarm"])
        until(lambda: metrics(other.ready())["shared"] == 1)
        assert by_signal(other, "alarm")[SIGNAL] == 0
        assert len(deployment.states()) == 2
        send(other, foreign_queries(200, first=5000))
        until(lambda: metrics(other)["blocks_total"] == 1)
        assert told(other) == NO_ALARM
        assert not any(metrics(each)["blocks_total"] for each in deployment.replicas[:1])
    deployment.redis.client.delete(*deployment.states())  # those with the usual alarms put theirs back
    until(lambda: len(deployment.states()) == 1)
    assert deployment.all_are(f'alarm{{signal="{SIGNAL}"}}', 1)


def test_replicas_reunite_after_redis_restart(deployment: Deployment) -> None:
    deployment.redis.kill()
    until(lambda: deployment.all_are("shared", 0))
    first = deployment.replicas[0]
    before = metrics(first)["blocks_total"]
    assert all(drift["alarm"] for drift in send(first, foreign_queries(400, first=10_000)))
    until(lambda: metrics(first)["blocks_total"] == before + 2)
    assert all(SIGNAL in told(each)["signals"] for each in deployment.replicas)

    deployment.restart_redis()
    until(lambda: deployment.all_are("shared", 1))
    until(deployment.agree)
    assert len(deployment.states()) == 1
    assert all(SIGNAL in told(each)["signals"] for each in deployment.replicas)
    with deployment.new() as late:
        until(lambda: SIGNAL in told(late.ready())["signals"])
    assert all("Traceback" not in each.log() for each in deployment.replicas)


def test_restarted_deployment_keeps_alarm(deployment: Deployment) -> None:
    assert [each.stop()[0] for each in deployment.replicas] == [0] * 3
    with deployment.new() as late:
        until(lambda: SIGNAL in told(late.ready())["signals"])
