"""One state of the alarms for all that answer, in Redis or in a file: who has seen what does not matter."""

import fcntl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson
import pytest
from prometheus_client import CollectorRegistry
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from taugate.drift.baseline import Baseline, OrdinaryRange
from taugate.drift.observations import Judgements, Observations
from taugate.retrieval.release.reader import Release
from taugate.service.drift import alarms
from taugate.service.drift.alarms import DriftAlarms
from taugate.service.drift.fleet import Fleet
from taugate.service.drift.gauges import DriftGauges
from taugate.service.metrics import SHARED_FOLDER
from taugate.service.settings import Settings
from tests.redis_process import RedisProcess
from tests.service.drift.traffic import NO_ALARM, SIGNAL, enough, foreign, observed

ALARM = {"alarm": True, "signals": [SIGNAL]}


class Process:
    """What watches in one process, and what its metrics say."""

    def __init__(self, release: Release, fleet: Fleet | None, **settings: Any) -> None:
        self._registry = CollectorRegistry()
        gauges = DriftGauges(self._registry, release.reference, theta=0.0)
        self.alarms = DriftAlarms(release, Settings(releases=Path(), **settings), gauges, fleet)
        self._nothing = observed(release, ["nothing"]).take(slice(0))

    def weighs(self, seen: Observations | None = None) -> dict:
        """What replies say after it."""
        self.alarms.weigh(self._nothing if seen is None else seen, Judgements.none())
        return self.told

    @property
    def told(self) -> dict:
        return dict(orjson.loads(self.alarms.report))

    def shows(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(f"taugate_drift_{name}", labels)


class Place(Protocol):
    """Where processes share their state, which anybody can write to."""

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
        return Process(release, None, **settings)

    def states(self) -> list[bytes]:
        return [path.read_bytes() for path in self.folder.iterdir()]

    def write(self, content: bytes) -> None:
        (path,) = self.folder.iterdir()
        path.write_bytes(content)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path_factory.mktemp("redis")) as redis:
        yield redis


@pytest.fixture
def in_redis(server: RedisProcess) -> InRedis:
    return InRedis(server)


@pytest.fixture
def in_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InFile:
    (tmp_path / "workers").mkdir()
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path / "workers"))
    return InFile(tmp_path / "workers")


@pytest.fixture(params=["in_redis", "in_file"])
def place(request: pytest.FixtureRequest) -> Place:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def needed(release: Release) -> int:
    return enough(release)


@pytest.fixture(scope="module")
def seen(release: Release, needed: int) -> Observations:
    """As many foreign questions as raise one alarm, of one signal, in a process that sees all of them."""
    return observed(release, foreign(needed))


def thirds(seen: Observations) -> list[Observations]:
    return [seen.take(part) for part in np.array_split(np.arange(len(seen)), 3)]


def test_three_that_see_a_third_each_alarm_when_one_would(place: Place, release: Release, seen: Observations) -> None:
    replicas = [place.join(release) for _ in range(3)]
    last = len(seen) - 1
    for each, part in zip(replicas, thirds(seen.take(slice(last))), strict=True):
        assert each.weighs(part) == NO_ALARM
        assert each.shows("shared") == 1
    assert [each.weighs() for each in replicas] == [NO_ALARM] * 3
    assert replicas[1].weighs(seen.take(slice(last, None))) == ALARM
    assert [each.weighs() for each in replicas] == [ALARM] * 3
    evidence = {each.shows("evidence", signal=SIGNAL) for each in replicas}
    assert len(evidence) == 1
    assert min(evidence) >= 1


def test_the_deployment_completes_a_block_once(place: Place, release: Release, seen: Observations) -> None:
    replicas = [place.join(release) for _ in range(3)]
    for each, part in zip(replicas, thirds(seen.take(slice(250))), strict=True):
        each.weighs(part)
    for each in replicas:
        each.weighs()
    assert sorted(each.shows("blocks_total") for each in replicas) == [0, 0, 1]
    assert [each.shows("block_queries") for each in replicas] == [200] * 3


def test_all_at_the_same_moment_lose_nothing(place: Place, release: Release, seen: Observations) -> None:
    """Each is in the way of two others at most, and gives way to them."""
    for _ in range(5):
        replicas = [place.join(release) for _ in range(3)]
        together = threading.Barrier(3)

        def work(each: Process, part: Observations, together: threading.Barrier = together) -> None:
            together.wait()
            each.weighs(part)

        parts = zip(replicas, thirds(seen), strict=True)
        threads = [threading.Thread(target=work, args=each) for each in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each.weighs() for each in replicas] == [ALARM] * 3
        assert sum(each.shows("blocks_total") or 0 for each in replicas) == 1
        replicas[0].alarms.forget()


def test_one_that_comes_later_knows_with_its_first_look(place: Place, release: Release, seen: Observations) -> None:
    place.join(release).weighs(seen)
    late = place.join(release)
    assert late.told == NO_ALARM
    assert late.weighs() == ALARM


def test_an_alarm_is_said_once_by_each(
    place: Place, release: Release, seen: Observations, caplog: pytest.LogCaptureFixture
) -> None:
    replicas = [place.join(release) for _ in range(2)]
    replicas[0].weighs(seen)
    for each in replicas * 2:
        each.weighs()
    said = [(record.message, record.fields["signal"]) for record in caplog.records]  # type: ignore[attr-defined]
    assert said == [("the traffic has drifted", SIGNAL)] * 2


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


def test_only_those_with_the_same_alarms_share(
    place: Place, release: Release, seen: Observations, tmp_path: Path
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


def test_a_release_that_has_left_begins_anew(place: Place, release: Release, seen: Observations) -> None:
    before = place.join(release)
    before.weighs(seen)
    before.alarms.forget()
    assert place.states() == []
    again = place.join(release)
    assert again.weighs() == NO_ALARM
    assert again.shows("evidence", signal=SIGNAL) == pytest.approx(0)


def test_while_others_still_serve_it_it_is_not_forgotten(place: Place, release: Release, seen: Observations) -> None:
    leaves, stays = place.join(release), place.join(release)
    leaves.weighs(seen)
    stays.weighs()
    leaves.alarms.forget()
    assert stays.weighs() == ALARM
    assert place.join(release).weighs() == ALARM


def cut(state: bytes) -> bytes:
    return state[: len(state) // 2]


def changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[bytes], bytes]:
    def change_one(state: bytes) -> bytes:
        arrays = load_tensors(state)
        return save_tensors(arrays | {name: np.ascontiguousarray(change(arrays[name]))})

    return change_one


def without_its_end(state: bytes) -> bytes:
    """The blocks of a process that has seen nothing, and no alarms of feedback."""
    arrays = load_tensors(state)
    kept = {name: array for name, array in arrays.items() if not name.startswith("feedback.coe.")}
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
    "other widths": changed("queries.blocks.sum", lambda array: np.zeros(3)),
    "other numbers": changed(f"queries.{SIGNAL}.peak", lambda array: array.astype(np.float32)),
    "not a number": changed(f"queries.{SIGNAL}.blocks", lambda array: array * np.nan),
    "more of an open block than there can be": changed("queries.blocks.sum", lambda array: array - 1e6),
    "counts below any": changed("queries.blocks.counts", lambda array: -array),
    "repeated keys": changed("queries.blocks.keys", lambda array: array * 0),
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE.keys())
def test_what_strangers_write_is_replaced_by_what_one_knows(
    place: Place, release: Release, needed: int, strange: Callable[[bytes], bytes]
) -> None:
    """As if nobody had written anything: the states are equal to the last bit."""
    asked = observed(release, foreign(needed + 600))  # with a block in the past, and one that is open
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


def test_what_could_be_a_state_is_taken_and_breaks_nothing(place: Place, release: Release, needed: int) -> None:
    """Counts that no service reaches in a thousand years, and blocks after them that ask for the same."""
    asked = observed(release, foreign(needed + 600))
    one = place.join(release)
    one.weighs(asked.take(slice(needed)))
    (state,) = place.states()
    place.write(changed("queries.blocks.counts", lambda array: array * 0 + (2**63 - 1))(state))
    for _ in range(2):
        one.weighs(asked)
        assert SIGNAL in one.told["signals"]
        assert one.shows("shared") == 1
    assert SIGNAL in place.join(release).weighs()["signals"]


def test_a_key_that_holds_something_else_is_replaced(in_redis: InRedis, release: Release, seen: Observations) -> None:
    one = in_redis.join(release)
    one.weighs(seen)
    (key,) = in_redis.keys()
    in_redis.redis.client.delete(key)
    in_redis.redis.client.rpush(key, "a list")
    assert one.weighs() == ALARM
    assert one.shows("shared") == 1
    assert in_redis.join(release).weighs() == ALARM


def test_without_redis_each_goes_on_alone(release: Release, seen: Observations) -> None:
    fleet = Fleet("redis://127.0.0.1:1/0", release.manifest.release_id, 60)
    one = Process(release, fleet)
    for part in thirds(seen):
        assert one.shows("shared") == 0
        one.weighs(part)
    assert one.told == ALARM
    assert one.shows("blocks_total") == 1


def test_a_process_on_its_own_shares_nothing(release: Release, seen: Observations) -> None:
    one = Process(release, None)
    assert one.weighs(seen) == ALARM
    assert one.shows("shared") == 0
    assert Process(release, None).weighs() == NO_ALARM


def test_a_worker_that_keeps_the_file_to_itself_keeps_nobody(
    in_file: InFile, release: Release, seen: Observations
) -> None:
    """As one that was stopped: what others have seen meanwhile is told when it goes on."""
    one = in_file.join(release)
    one.weighs()
    (path,) = in_file.folder.iterdir()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert one.weighs(seen) == ALARM
        assert one.shows("shared") == 0
    assert one.weighs() == ALARM
    assert one.shows("shared") == 1
    assert in_file.join(release).weighs() == ALARM


def test_what_waits_for_others_is_bounded(
    in_file: InFile, release: Release, seen: Observations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarms, "_MAX_UNSHARED", 250)
    one = in_file.join(release)
    one.weighs()
    (path,) = in_file.folder.iterdir()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for _ in range(4):
            one.weighs(seen.take(slice(100)))
    assert sum(len(queries) for queries, _ in one.alarms._unshared) == 200
    one.weighs()
    assert not one.alarms._unshared


def test_without_its_folder_a_worker_goes_on_alone(in_file: InFile, release: Release, seen: Observations) -> None:
    one = in_file.join(release)
    in_file.folder.rmdir()
    assert one.weighs(seen) == ALARM
    assert one.shows("shared") == 0


def test_the_file_is_for_nobody_else_to_read(in_file: InFile, release: Release) -> None:
    in_file.join(release).weighs()
    (path,) = in_file.folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


class Again:
    """A place in which another process is always a little faster, the first time."""

    def __init__(self) -> None:
        self.state: bytes | None = None

    def change(self, work: Callable[[bytes | None], bytes | None]) -> bool:
        work(self.state)
        self.state = work(self.state) or self.state
        return True

    def drop(self) -> None:
        self.state = None


def test_what_is_added_again_is_counted_once(release: Release, seen: Observations) -> None:
    one, alone = Process(release, None), Process(release, None)
    one.alarms._shared = Again()
    for part in thirds(seen.take(slice(230))):
        one.weighs(part)
        alone.weighs(part)
    assert one.shows("blocks_total") == alone.shows("blocks_total") == 1
    assert one.alarms.monitor.pack() == alone.alarms.monitor.pack()


class TooLate(Again):
    """A place that is out of reach when the work is done."""

    def change(self, work: Callable[[bytes | None], bytes | None]) -> bool:
        super().change(work)
        return False


def test_what_could_not_be_told_to_others_is_counted_once(release: Release, seen: Observations) -> None:
    one, alone = Process(release, None), Process(release, None)
    one.alarms._shared = TooLate()
    for part in thirds(seen.take(slice(230))):
        one.alarms._shared.drop()
        one.weighs(part)
        alone.weighs(part)
    assert one.shows("blocks_total") == 1
    assert one.alarms.monitor.pack() == alone.alarms.monitor.pack()


def test_golden_queries_are_a_signal_of_their_own(release: Release, seen: Observations) -> None:
    one = Process(release, None)
    one.alarms.canary(alike=False)
    assert one.told == {"alarm": True, "signals": ["canary"]}
    assert one.weighs(seen) == {"alarm": True, "signals": [SIGNAL, "canary"]}
    one.alarms.canary(alike=True)
    assert one.told == ALARM


def test_what_was_ordinary_is_no_drift(release: Release, seen: Observations, tmp_path: Path) -> None:
    path = with_a_baseline(release, tmp_path, 0.0, 1.0)
    one = Process(release, None, drift_baseline=path)
    assert (one.shows("baseline"), one.shows("baseline_refused")) == (1, 0)
    assert one.weighs(seen) == NO_ALARM
    assert Process(release, None).shows("baseline") == 0


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
def test_a_baseline_that_does_not_fit_is_said_and_nothing_else(
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
    (said,) = caplog.records
    assert said.message == "drift is watched without a baseline"
    assert reason in said.fields["reason"]  # type: ignore[attr-defined]
    assert one.weighs(seen) == ALARM


def test_the_threshold_is_that_of_its_rules(release: Release) -> None:
    rarer = Process(release, None, drift_seldom=1e12)
    usual = Process(release, None)
    assert rarer.shows("alarm_threshold") == pytest.approx((usual.shows("alarm_threshold") or 0) + np.log(1000))
