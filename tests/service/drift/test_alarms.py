"""Shared alarm state, in Redis or in a file: it does not matter which process sees which queries."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from taugate.drift.observations import Observations
from taugate.retrieval.reader import Release
from tests.service.drift.processes import ALARM, InFile, Process, StateStore, split_in_three, with_a_baseline
from tests.service.drift.traffic import NO_ALARM, SIGNAL


def test_shared_evidence_raises_alarm_as_one_process(place: StateStore, release: Release, seen: Observations) -> None:
    replicas = [place.join(release) for _ in range(3)]
    last = len(seen) - 1
    for each, part in zip(replicas, split_in_three(seen.take(slice(last))), strict=True):
        assert each.weighs(part) == NO_ALARM
        assert each.shows("shared") == 1
    assert [each.weighs() for each in replicas] == [NO_ALARM] * 3
    assert replicas[1].weighs(seen.take(slice(last, None))) == ALARM
    assert [each.weighs() for each in replicas] == [ALARM] * 3
    evidence = {each.shows("evidence", signal=SIGNAL) for each in replicas}
    assert len(evidence) == 1
    assert min(evidence) >= 1


def test_shared_block_is_completed_once(place: StateStore, release: Release, seen: Observations) -> None:
    replicas = [place.join(release) for _ in range(3)]
    for each, part in zip(replicas, split_in_three(seen.take(slice(250))), strict=True):
        each.weighs(part)
    for each in replicas:
        each.weighs()
    assert sorted(each.shows("blocks_total") for each in replicas) == [0, 0, 1]
    assert [each.shows("block_queries") for each in replicas] == [200] * 3


def test_concurrent_updates_lose_no_evidence(place: StateStore, release: Release, seen: Observations) -> None:
    """Each is in the way of two others at most, and gives way to them."""
    for _ in range(5):
        replicas = [place.join(release) for _ in range(3)]
        together = threading.Barrier(3)

        def work(each: Process, part: Observations, together: threading.Barrier = together) -> None:
            together.wait()
            each.weighs(part)

        parts = zip(replicas, split_in_three(seen), strict=True)
        threads = [threading.Thread(target=work, args=each) for each in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each.weighs() for each in replicas] == [ALARM] * 3
        assert sum(each.shows("blocks_total") or 0 for each in replicas) == 1
        replicas[0].alarms.forget()


def test_late_process_takes_over_alarm(place: StateStore, release: Release, seen: Observations) -> None:
    place.join(release).weighs(seen)
    late = place.join(release)
    assert late.told == NO_ALARM
    assert late.weighs() == ALARM


def test_alarm_is_logged_once_per_process(
    place: StateStore, release: Release, seen: Observations, caplog: pytest.LogCaptureFixture
) -> None:
    replicas = [place.join(release) for _ in range(2)]
    replicas[0].weighs(seen)
    for each in replicas * 2:
        each.weighs()
    messages = [(record.message, record.fields["signal"]) for record in caplog.records]  # type: ignore[attr-defined]
    assert messages == [("drift alarm raised", SIGNAL)] * 2


def test_only_equal_alarm_settings_share_state(
    place: StateStore, release: Release, seen: Observations, tmp_path: Path
) -> None:
    clone = replace(release, manifest=release.manifest.model_copy(update={"release_id": "another"}))
    wider = with_a_baseline(release, tmp_path, 0.4, 0.6)
    one = place.join(release)
    others = [
        place.join(release, drift_smallest_effect=0.2),
        place.join(release, drift_seldom=1e10),
        place.join(release, drift_block=100),
        place.join(release, drift_block="auto"),
        place.join(release, drift_baseline=wider),
        place.join(clone),
    ]
    assert one.weighs(seen) == ALARM
    assert [each.weighs() for each in others] == [NO_ALARM] * len(others)
    assert [each.shows("shared") for each in others] == [1] * len(others)
    assert len(place.states()) == 1 + len(others)
    assert one.weighs() == ALARM


def test_returning_release_starts_without_evidence(place: StateStore, release: Release, seen: Observations) -> None:
    before = place.join(release)
    before.weighs(seen)
    before.alarms.forget()
    assert place.states() == []
    again = place.join(release)
    assert again.weighs() == NO_ALARM
    assert again.shows("evidence", signal=SIGNAL) == pytest.approx(0)


def test_forgotten_state_is_restored_by_other_process(place: StateStore, release: Release, seen: Observations) -> None:
    leaves, stays = place.join(release), place.join(release)
    leaves.weighs(seen)
    stays.weighs()
    leaves.alarms.forget()
    assert stays.weighs() == ALARM
    assert place.join(release).weighs() == ALARM


def test_shared_file_is_private(in_file: InFile, release: Release) -> None:
    in_file.join(release).weighs()
    files = [*in_file.folder.iterdir()]
    assert files
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
