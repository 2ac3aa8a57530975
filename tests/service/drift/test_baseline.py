"""TAUGATE_DRIFT_BASELINE: a fitting baseline is used, and an unfit one is logged; the service works in both cases.

The setting names a link, so that one service, which switches between two releases, can load all of them.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taugate.drift.monitor import Baseline, OrdinaryRange
from taugate.registry.catalog import find
from taugate.release.layout import baseline_path
from taugate.retrieval.reader import Release
from tests.prometheus_process import until
from tests.release.clones import clone
from tests.service.drift.traffic import NO_ALARM, Reloading, metrics, told, watching

REFUSED = "drift baseline refused; comparing with the calibration"


class Serving:
    """A service on two releases that differ in their ids, and the path of its baseline."""

    def __init__(self, service: Reloading, names: list[str], path: Path) -> None:
        self.service, self.path, self._names = service, path, names

    @property
    def next(self) -> str:
        """The release that `take` has it serve."""
        return self._names[1]

    def take(self) -> tuple[float, float]:
        """Have it serve the other release; whether a baseline is in force, and whether one was refused."""
        self._names.reverse()
        turns = self.service.log().count('"previous release closed"')
        assert self.service.reload(self._names[0]) == "loaded"
        until(
            lambda: self.service.log().count('"previous release closed"') > turns
        )  # and what it said before that is there to read
        shown = metrics(self.service)
        return shown["baseline"], shown["baseline_refused"]

    def said(self) -> list[dict]:
        """What the log says of baselines."""
        lines = [json.loads(line) for line in self.service.log().splitlines()]
        return [line for line in lines if "baseline" in line["message"]]


@pytest.fixture(scope="module")
def service(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    own = tmp_path_factory.mktemp("own")
    folder = shutil.copytree(releases, own / "releases")
    names = [find(folder).name, clone(find(folder), minute=0)]
    with Reloading(folder, TAUGATE_DRIFT_BASELINE=str(own / "baseline")) as process:
        process.ready()
        yield Serving(process, names, own / "baseline")


@pytest.fixture
def serving(service: Serving) -> Iterator[Serving]:
    """With nothing where the baseline would be."""
    yield service
    if service.path.is_dir():
        shutil.rmtree(service.path)
    service.path.unlink(missing_ok=True)


@pytest.fixture
def learnt(release: Release) -> Callable[..., Baseline]:
    """A baseline of any release and of any number of days, as wide as the calibration itself."""

    def make(name: str, days: int = 7) -> Baseline:
        calibrated = {signal.name: signal.calibrated for signal in watching(release).queries.signals}
        return Baseline(
            release=name,
            first="2026-01-01T00:00:00+00:00",
            last="2026-01-07T23:59:59+00:00",
            days=days,
            queries=100_000,
            block=200,
            blocks=500,
            signals={
                signal: OrdinaryRange(lower=bounds.lower.tolist(), upper=bounds.upper.tolist())
                for signal, bounds in calibrated.items()
            },
        )

    return make


def test_missing_baseline_does_not_stop_service(serving: Serving) -> None:
    assert told(serving.service) == NO_ALARM
    assert metrics(serving.service)["baseline_refused"] == 1


def test_baseline_file_is_used(serving: Serving, learnt: Callable[..., Baseline]) -> None:
    before = serving.said()
    learnt(serving.next).save(serving.path)
    assert serving.take() == (1, 0)
    assert serving.said() == before
    assert told(serving.service) == NO_ALARM


def test_baseline_of_release_is_taken_from_folder(serving: Serving, learnt: Callable[..., Baseline]) -> None:
    serving.path.mkdir()
    learnt(serving.next).save(baseline_path(serving.path, serving.next))
    learnt("another").save(baseline_path(serving.path, "another"))
    before = serving.said()
    assert serving.take() == (1, 0)
    assert serving.said() == before


def test_folder_without_baseline_is_accepted(serving: Serving, learnt: Callable[..., Baseline]) -> None:
    """A release that was promoted today has none before next week."""
    serving.path.mkdir()
    learnt("another").save(baseline_path(serving.path, "another"))
    before = len(serving.said())
    assert serving.take() == (0, 0)
    (line,) = serving.said()[before:]
    assert (line["level"], line["message"]) == ("info", "no drift baseline for this release")


def of_another_release(path: Path, name: str, learnt: Callable[..., Baseline]) -> None:
    learnt("another").save(path)


def of_six_days(path: Path, name: str, learnt: Callable[..., Baseline]) -> None:
    learnt(name, days=6).save(path)


def with_a_changed_digit(path: Path, name: str, learnt: Callable[..., Baseline]) -> None:
    learnt(name).save(path)
    path.write_bytes(path.read_bytes().replace(b"100000", b"100001"))


def cut_short(path: Path, name: str, learnt: Callable[..., Baseline]) -> None:
    learnt(name).save(path)
    path.write_bytes(path.read_bytes()[:-40])


def nothing(path: Path, name: str, learnt: Callable[..., Baseline]) -> None:
    pass


def a_link_to_itself(path: Path, name: str, learnt: Callable[..., Baseline]) -> None:
    path.symlink_to(path)


def misnamed_in_a_folder(path: Path, name: str, learnt: Callable[..., Baseline]) -> None:
    path.mkdir()
    learnt("another").save(baseline_path(path, name))


@pytest.mark.parametrize(
    ("there_is", "reason"),
    [
        (of_another_release, "belongs to release 'another', not to"),
        (of_six_days, "covers 6 days, and a baseline needs 7"),
        (with_a_changed_digit, "damaged, its digest does not match"),
        (cut_short, "damaged, or not a baseline"),
        (nothing, "cannot be read (No such file or directory)"),
        (a_link_to_itself, "cannot be read"),
        (misnamed_in_a_folder, "belongs to release 'another', not to"),
    ],
)
def test_unfit_baseline_is_logged_once(
    serving: Serving,
    learnt: Callable[..., Baseline],
    there_is: Callable[[Path, str, Callable[..., Baseline]], None],
    reason: str,
) -> None:
    there_is(serving.path, serving.next, learnt)
    before, release = len(serving.said()), serving.next
    assert serving.take() == (0, 1)
    (line,) = serving.said()[before:]
    assert (line["level"], line["message"], line["release"]) == ("warning", REFUSED, release)
    assert line["reason"].startswith(str(serving.path))
    assert reason in line["reason"]
    assert told(serving.service) == NO_ALARM
