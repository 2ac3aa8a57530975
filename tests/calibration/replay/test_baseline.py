"""`taugate drift baseline`: a week of traffic makes the range that is no drift, and a replay takes it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.replay import AnsweredLog
from taugate.cli import main as cli
from taugate.drift.monitor import load_baseline
from taugate.drift.signals import Rules
from taugate.release.layout import baseline_path
from tests.calibration.replay.conftest import Command
from tests.calibration.replay.records import DAY, START, Service, write

Learn = Callable[..., tuple[str, str]]


@pytest.fixture
def own(releases: Path, tmp_path: Path) -> Path:
    """A copy of the releases, which a baseline is written beside."""
    return Path(shutil.copytree(releases, tmp_path / "releases"))


@pytest.fixture(scope="module")
def week(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight days of 1,000 queries each, at night about something else."""
    service = Service(releases)
    queries = []
    for at in (START + np.arange(8000) * DAY / 1000).tolist():
        night = at % DAY < DAY / 3
        queries += service.queries([at], off=0.3 if night else 0.0)
    return write(tmp_path_factory.mktemp("week") / "week.log", queries)


@pytest.fixture
def learn(own: Path, capsys: pytest.CaptureFixture[str]) -> Learn:
    def run(*arguments: object) -> tuple[str, str]:
        capsys.readouterr()
        assert cli.main(["drift", "baseline", *map(str, arguments), "--releases", str(own)]) == 0
        said = capsys.readouterr()
        return said.out, said.err

    return run


def test_baseline_is_written_beside_release(own: Path, week: Path, service: Service, learn: Learn) -> None:
    out, err = learn(week)
    path = baseline_path(own, service.release)
    assert out == f"{path}\n"
    learnt, *warnings, last = err.splitlines()
    assert learnt == "learned from 8,000 queries on 9 days, 40 blocks: 2001-09-09 01:46:40 to 2001-09-17 01:45:13 UTC"
    assert last == f"to use it, set TAUGATE_DRIFT_BASELINE={path} for the service"
    assert [line.split(": ")[1] for line in warnings] == ["topk_similarity", "empty_responses", "dropped_share"]
    assert all("differs from the calibration's" in line and "recalibrate if it persists" in line for line in warnings)
    answered = AnsweredLog.read(own, None, [week])
    found = load_baseline(path, service.release, answered.monitor(Rules()))
    assert (found.days, found.blocks, found.queries) == (9, 40, 8000)


def test_baseline_json_output(own: Path, week: Path, service: Service, learn: Learn) -> None:
    found = json.loads(learn(week, "--json", "--block", "100")[0])
    assert {*found} == {"release", "path", "days", "blocks", "queries", "signals"}
    assert (found["release"], found["path"]) == (service.release, str(baseline_path(own, service.release)))
    assert (found["days"], found["blocks"], found["queries"]) == (9, 80, 8000)
    assert {*found["signals"]} == {"topk_similarity", "roe", "empty_responses", "dropped_share"}
    assert all(len(each["lower"]) == len(each["upper"]) for each in found["signals"].values())


def test_baseline_is_reproducible(own: Path, week: Path, service: Service, learn: Learn) -> None:
    path = baseline_path(own, service.release)
    learn(week)
    first = path.read_bytes()
    learn(week)
    assert path.read_bytes() == first


def test_baseline_suppresses_nightly_alarms(own: Path, week: Path, learn: Learn, replayed: Command) -> None:
    without = replayed(week)
    assert [moment for moment in without["moments"] if moment["alarm"]]
    path = learn(week)[0].strip()
    for named in (path, own):  # the file, or the folder that it is in
        found = replayed(week, "--baseline", named)
        assert found["baseline"] is True
        assert found["moments"] == []


def test_short_log_writes_no_baseline(own: Path, service: Service, tmp_path: Path, refused: Callable[..., str]) -> None:
    days = service.queries((START + np.arange(6000) * DAY / 1000).tolist())[:5000]
    few = service.queries((START + np.arange(800) * DAY / 100).tolist())
    before = sorted(own.iterdir())
    said = refused("baseline", write(tmp_path / "days.log", days), releases=own)
    assert "6 days (UTC) and 25 blocks of 200 distinct queries; a baseline needs 7 days" in said
    assert "9 days (UTC) and 4 blocks" in refused("baseline", write(tmp_path / "few.log", few), releases=own)
    assert "--block must be auto" in refused("baseline", tmp_path / "few.log", "--block", "7", releases=own)
    assert sorted(own.iterdir()) == before


def test_incompatible_baseline_is_rejected(
    own: Path, week: Path, learn: Learn, tmp_path: Path, refused: Callable[..., str]
) -> None:
    path = Path(learn(week)[0].strip())
    text = path.read_text(encoding="utf-8")
    (tmp_path / "damaged.json").write_text(text.replace('"days": 9', '"days": 8'), encoding="utf-8")
    (tmp_path / "none.json").write_text("{}", encoding="utf-8")
    for name, said in (
        ("damaged", "its digest does not match"),
        ("none", "not a baseline"),
        ("missing", "No such file"),
    ):
        error = refused("replay", week, "--baseline", tmp_path / f"{name}.json", releases=own)
        assert said in error
        assert "make it again with `taugate drift baseline`" in error
    assert not week.with_name("week.log.html").exists()


def test_baseline_of_another_release_is_rejected(
    own: Path, week: Path, learn: Learn, tmp_path: Path, refused: Callable[..., str]
) -> None:
    learn(week)
    answered = AnsweredLog.read(own, None, [week])
    other = "20200101T000000Z-0123456789ab"
    found = load_baseline(baseline_path(own, answered.release), answered.release, answered.monitor(Rules()))
    found.model_copy(update={"release": other}).save(tmp_path / "other.json")
    error = refused("replay", week, "--baseline", tmp_path / "other.json", releases=own)
    assert f"belongs to release '{other}', not to {answered.release}" in error
