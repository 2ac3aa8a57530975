"""Alarms of one process, and of several that share their state, in Redis or in a file."""

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from taugate.drift.observations import Observations
from taugate.release.layout import baseline_path
from taugate.retrieval.reader import Release
from taugate.service.drift import alarms
from taugate.service.replicas import Fleet
from tests.drift.watched import replaced
from tests.service.drift.processes import ALARM, InFile, InRedis, Process, StateStore, split_in_three, with_a_baseline
from tests.service.drift.traffic import NO_ALARM, SIGNAL, foreign_queries, observed


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


def test_canary_alarm_is_reported_separately(release: Release, seen: Observations) -> None:
    one = Process(release, None)
    one.alarms.canary(alike=False)
    assert one.told == {"alarm": True, "signals": ["canary"]}
    assert one.weighs(seen) == {"alarm": True, "signals": [SIGNAL, "canary"]}
    one.alarms.canary(alike=True)
    assert one.told == ALARM


def test_baseline_prevents_alarm(release: Release, seen: Observations, tmp_path: Path) -> None:
    path = with_a_baseline(release, tmp_path, 0.0, 1.0)
    one = Process(release, None, drift_baseline=path)
    assert (one.shows("baseline"), one.shows("baseline_refused")) == (1, 0)
    assert one.weighs(seen) == NO_ALARM
    assert Process(release, None).shows("baseline") == 0


def test_baseline_is_taken_from_folder_by_release(release: Release, tmp_path: Path) -> None:
    folder, name = tmp_path / "baselines", release.manifest.release_id
    folder.mkdir()
    files = (
        None,
        with_a_baseline(release, tmp_path, 0.0, 1.0).read_bytes(),
        of_another_release(release, tmp_path).read_bytes(),
    )
    for file, shown in zip(files, [(0, 0), (1, 0), (0, 1)], strict=True):  # none yet, a fitting one, a misnamed one
        if file is not None:
            baseline_path(folder, name).write_bytes(file)
        one = Process(release, None, drift_baseline=folder)
        assert (one.shows("baseline"), one.shows("baseline_refused")) == shown


def of_another_release(release: Release, folder: Path) -> Path:
    other = release.manifest.model_copy(update={"release_id": "another"})
    return with_a_baseline(replace(release, manifest=other), folder, 0.0, 1.0)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (lambda release, folder: folder / "nowhere", "cannot be read"),
        (lambda release, folder: folder / ("x" * 300), "cannot be read"),
        (lambda release, folder: folder.joinpath("baseline.json", "below"), "cannot be read"),
        (of_another_release, "belongs to release 'another', not to"),
    ],
    ids=["missing", "no possible name", "in a file", "of another release"],
)
def test_unfit_baseline_is_refused_and_logged(
    release: Release,
    seen: Observations,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    path: Callable[[Release, Path], Path],
    reason: str,
) -> None:
    (tmp_path / "baseline.json").write_bytes(b"{}")
    one = Process(release, None, drift_baseline=path(release, tmp_path))
    assert (one.shows("baseline"), one.shows("baseline_refused")) == (0, 1)
    (record,) = caplog.records
    assert record.message == "drift baseline refused; comparing with the calibration"
    assert reason in record.fields["reason"]  # type: ignore[attr-defined]
    assert one.weighs(seen) == ALARM


def test_alarm_threshold_follows_rules(release: Release) -> None:
    rarer = Process(release, None, drift_seldom=1e12)
    usual = Process(release, None)
    assert rarer.shows("alarm_threshold") == pytest.approx((usual.shows("alarm_threshold") or 0) + np.log(1000))


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


def cut(state: bytes) -> bytes:
    return state[: len(state) // 2]


def without_its_end(state: bytes) -> bytes:
    """The blocks of a process that has seen nothing, and no alarms of feedback."""
    arrays = load_tensors(state)
    kept = {name: array for name, array in arrays.items() if not name.startswith("feedback.quality.")}
    nothing = {"keys": arrays["queries.blocks.keys"][:0], "counts": arrays["queries.blocks.counts"][:0]}
    nothing |= {"lengths": np.zeros(1, dtype=np.int64), "fifths": arrays["queries.blocks.fifths"][:0]}
    nothing |= {"sum": np.zeros_like(arrays["queries.blocks.sum"])}
    return save_tensors(kept | {f"queries.blocks.{name}": array for name, array in nothing.items()})


STRANGE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda state: b"",
    "words": lambda state: b"garbage",
    "half of it": cut,
    "more than it": lambda state: state + b"x",
    "half of another one": without_its_end,
    "tensors of something else": lambda state: save_tensors({"a": np.zeros(3)}),
    "no tensors": lambda state: save_tensors({}),
    "other widths": replaced("queries.blocks.sum", lambda array: np.zeros(3)),
    "other numbers": replaced(f"queries.{SIGNAL}.peak", lambda array: array.astype(np.float32)),
    "not a number": replaced(f"queries.{SIGNAL}.blocks", lambda array: array * np.nan),
    "more of an open block than there can be": replaced("queries.blocks.sum", lambda array: array - 1e6),
    "counts below any": replaced("queries.blocks.counts", lambda array: -array),
    "repeated keys": replaced("queries.blocks.keys", lambda array: array * 0),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE.keys())
def test_invalid_shared_state_is_replaced(
    place: StateStore, release: Release, needed: int, strange: Callable[[bytes], bytes]
) -> None:
    """As if nobody had written anything: the states are equal to the last bit."""
    asked = observed(release, foreign_queries(needed + 600))  # with a block in the past, and one that is open
    one, undisturbed = place.join(release), place.join(release).alarms.monitor
    one.weighs(asked.take(slice(needed + 5)))
    undisturbed.update(asked)
    (state,) = place.states()
    place.write(strange(state))
    for start in range(needed + 5, needed + 605, 120):
        one.weighs(asked.take(slice(start, start + 120)))
        assert SIGNAL in one.told["signals"]
        assert one.shows("shared") == 1
        assert 1 <= (one.shows("evidence", signal=SIGNAL) or 0) <= 2
    assert one.shows("blocks_total") == (needed + 600) // 200
    assert one.alarms.monitor.pack() == undisturbed.pack()
    assert SIGNAL in place.join(release).weighs()["signals"]


def test_extreme_valid_state_does_no_harm(place: StateStore, release: Release, needed: int) -> None:
    """Counts that no service reaches in a thousand years, and blocks after them that ask for the same."""
    asked = observed(release, foreign_queries(needed + 600))
    one = place.join(release)
    one.weighs(asked.take(slice(needed)))
    (state,) = place.states()
    place.write(replaced("queries.blocks.counts", lambda array: array * 0 + (2**63 - 1))(state))
    for _ in range(2):
        one.weighs(asked)
        assert SIGNAL in one.told["signals"]
        assert one.shows("shared") == 1
    assert SIGNAL in place.join(release).weighs()["signals"]


def test_key_of_another_type_is_replaced(in_redis: InRedis, release: Release, seen: Observations) -> None:
    one = in_redis.join(release)
    one.weighs(seen)
    (key,) = in_redis.keys()
    in_redis.redis.client.delete(key)
    in_redis.redis.client.rpush(key, "a list")
    assert one.weighs() == ALARM
    assert one.shows("shared") == 1
    assert in_redis.join(release).weighs() == ALARM
