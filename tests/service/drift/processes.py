"""Processes that watch one release for drift, and the two places where they share their state."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson
from prometheus_client import CollectorRegistry

from taugate.drift.monitor import Baseline, OrdinaryRange
from taugate.drift.observations import JudgedReplies, Observations
from taugate.retrieval.reader import Release
from taugate.service.drift.alarms import DriftAlarms, DriftGauges
from taugate.service.drift.worker_store import FILE, WorkerStore
from taugate.service.replicas import Fleet
from taugate.service.settings import Settings
from tests.redis_process import RedisProcess
from tests.service.drift.traffic import SIGNAL, observed

ALARM = {"alarm": True, "signals": [SIGNAL]}


class Process:
    """What watches in one process, and what its metrics say."""

    def __init__(self, release: Release, shared: Fleet | WorkerStore | None, **settings: Any) -> None:
        self._registry = CollectorRegistry()
        gauges = DriftGauges(self._registry, release.reference, theta=0.0)
        self.alarms = DriftAlarms(release, Settings(releases=Path(), **settings), gauges, shared)
        self._nothing = observed(release, ["nothing"]).take(slice(0))

    def weighs(self, seen: Observations | None = None) -> dict:
        """What replies say after it."""
        self.alarms.update(self._nothing if seen is None else seen, JudgedReplies.none())
        return self.told

    @property
    def told(self) -> dict:
        return dict(orjson.loads(self.alarms.report))

    def shows(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(f"taugate_drift_{name}", labels)


class StateStore(Protocol):
    """The store through which processes share their drift state; anybody can write to it."""

    def join(self, release: Release, **settings: Any) -> Process: ...
    def states(self) -> list[bytes]: ...
    def write(self, content: bytes) -> None: ...


class InRedis:
    def __init__(self, redis: RedisProcess) -> None:
        self.redis = redis
        redis.client.flushall()

    def join(self, release: Release, **settings: Any) -> Process:
        return Process(release, Fleet(self.redis.url, release.manifest.release_id, 60), **settings)

    def keys(self) -> list[bytes]:
        return [*self.redis.client.scan_iter("taugate:drift:*:state:*")]

    def states(self) -> list[bytes]:
        return [self.redis.client.get(key) for key in self.keys()]

    def write(self, content: bytes) -> None:
        (key,) = self.keys()
        self.redis.client.set(key, content)


class InFile:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def join(self, release: Release, **settings: Any) -> Process:
        return Process(release, WorkerStore(self.folder, release.manifest.release_id, 60), **settings)

    def open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / FILE, isolation_level=None)

    def states(self) -> list[bytes]:
        with closing(self.open()) as database:
            return [state for (state,) in database.execute("SELECT state FROM states")]

    def write(self, content: bytes) -> None:
        with closing(self.open()) as database:
            assert database.execute("UPDATE states SET state = ?", (content,)).rowcount == 1


def split_in_three(seen: Observations) -> list[Observations]:
    return [seen.take(part) for part in np.array_split(np.arange(len(seen)), 3)]


def with_a_baseline(release: Release, folder: Path, lower: float, upper: float) -> Path:
    """Of a week in which everything was between the two."""
    monitor = Process(release, None).alarms.monitor
    ranges = {
        alarm.signal: OrdinaryRange(lower=[lower] * len(alarm.bounds.lower), upper=[upper] * len(alarm.bounds.lower))
        for alarm in monitor.queries.alarms
    }
    days = {"first": "2026-01-01T00:00:00+00:00", "last": "2026-01-08T00:00:00+00:00", "days": 8}
    name = release.manifest.release_id
    path = folder / "baseline.json"
    Baseline(release=name, **days, queries=9999, block=200, blocks=49, signals=ranges).save(path)
    return path
