"""A process that cannot reach the shared state continues alone, and counts no query twice."""

from collections.abc import Callable
from contextlib import closing

import pytest

from taugate.drift.observations import Observations
from taugate.retrieval.reader import Release
from taugate.service.drift import alarms
from taugate.service.replicas import Fleet
from tests.service.drift.processes import ALARM, InFile, Process, split_in_three
from tests.service.drift.traffic import NO_ALARM


def test_alarm_works_without_redis(release: Release, seen: Observations) -> None:
    fleet = Fleet("redis://127.0.0.1:1/0", release.manifest.release_id, 60)
    one = Process(release, fleet)
    for part in split_in_three(seen):
        assert one.shows("shared") == 0
        one.weighs(part)
    assert one.told == ALARM
    assert one.shows("blocks_total") == 1


def test_single_process_shares_nothing(release: Release, seen: Observations) -> None:
    one = Process(release, None)
    assert one.weighs(seen) == ALARM
    assert one.shows("shared") == 0
    assert Process(release, None).weighs() == NO_ALARM


def test_locked_file_does_not_block_worker(in_file: InFile, release: Release, seen: Observations) -> None:
    """As one that was stopped: what others have seen meanwhile is told when it goes on."""
    one = in_file.join(release)
    one.weighs()
    with closing(in_file.open()) as other:
        other.execute("BEGIN IMMEDIATE")
        assert one.weighs(seen) == ALARM
        assert one.shows("shared") == 0
    assert one.weighs() == ALARM
    assert one.shows("shared") == 1
    assert in_file.join(release).weighs() == ALARM


@pytest.mark.slow
def test_unshared_queries_are_bounded(
    in_file: InFile, release: Release, seen: Observations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarms, "_MAX_UNSHARED", 250)
    one = in_file.join(release)
    one.weighs()
    with closing(in_file.open()) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(4):
            one.weighs(seen.take(slice(100)))
    assert sum(len(queries) for queries, _ in one.alarms._unshared) == 200
    one.weighs()
    assert not one.alarms._unshared


def test_missing_folder_does_not_stop_alarm(in_file: InFile, release: Release, seen: Observations) -> None:
    in_file.folder = in_file.folder / "missing"
    one = in_file.join(release)
    assert one.weighs(seen) == ALARM
    assert one.shows("shared") == 0


class ConflictingStore:
    """A store in which another process always writes first, so that each change is tried twice."""

    def __init__(self) -> None:
        self.state: bytes | None = None

    def change(self, kind: str, work: Callable[[bytes | None], bytes | None]) -> bool:
        work(self.state)
        self.state = work(self.state) or self.state
        return True

    def drop(self, kind: str = "") -> None:
        self.state = None


def test_retried_change_counts_queries_once(release: Release, seen: Observations) -> None:
    one, alone = Process(release, None), Process(release, None)
    one.alarms._shared = ConflictingStore()
    for part in split_in_three(seen.take(slice(230))):
        one.weighs(part)
        alone.weighs(part)
    assert one.shows("blocks_total") == alone.shows("blocks_total") == 1
    assert one.alarms.monitor.pack() == alone.alarms.monitor.pack()


class TooLate(ConflictingStore):
    """A place that is out of reach when the work is done."""

    def change(self, kind: str, work: Callable[[bytes | None], bytes | None]) -> bool:
        super().change(kind, work)
        return False


def test_failed_change_counts_queries_once(release: Release, seen: Observations) -> None:
    one, alone = Process(release, None), Process(release, None)
    one.alarms._shared = TooLate()
    for part in split_in_three(seen.take(slice(230))):
        one.alarms._shared.drop(one.alarms._kind)
        one.weighs(part)
        alone.weighs(part)
    assert one.shows("blocks_total") == 1
    assert one.alarms.monitor.pack() == alone.alarms.monitor.pack()
