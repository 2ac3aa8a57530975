"""A baseline: the range of an ordinary week is no drift, and what is no baseline is refused with its name."""

import itertools
import json
import os
import statistics
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taugate.drift.baseline import Baseline, load_baseline
from taugate.drift.monitor import Monitor, Rules, theta_of
from taugate.drift.observations import Observations
from taugate.errors import InputError
from taugate.retrieval.release.layout import baseline_path
from tests.drift.similarities import reference, traffic

CALIBRATION = reference(np.random.default_rng(0))
MONDAY = 19_723 * 86_400.0  # 2024-01-01, UTC
PER_DAY = 4000  # ten blocks by day, ten by night


def monitor(baseline: Baseline | None = None, rules: Rules | None = None) -> Monitor:
    ordinary = baseline.bounds if baseline else {}
    return Monitor(CALIBRATION, theta_of(CALIBRATION, 5), rules or Rules(), ordinary)


def days(seed: int, many: int, swing: float, per_day: int = PER_DAY) -> Observations:
    """Similarities are higher by `swing` by day and lower by as much at night, from a Monday on."""
    queries = per_day * many
    night = np.arange(queries) // (per_day // 2) % 2
    seen = traffic(np.random.default_rng(seed), queries, mean=0.6 + swing * (1 - 2 * night))
    return replace(seen, at=MONDAY + np.arange(queries) * 86_400 / per_day)


def learnt(seed: int = 1, swing: float = 0.1) -> Baseline:
    return Baseline.learn("release", days(seed, 7, swing), monitor())


def test_a_week_of_days_and_nights_is_drift_without_a_baseline_and_none_with_it() -> None:
    fortnight = days(2, 14, 0.1)
    alarms = [change for change in monitor().update(fortnight) if change.on]
    assert len(alarms) > 10  # nearly every night
    assert monitor(learnt()).update(fortnight) == []


def test_and_another_night_that_lasts_all_day_is_still_drift() -> None:
    watched = monitor(learnt())
    watched.update(days(2, 7, 0.1))
    darker = traffic(np.random.default_rng(3), 8000, mean=0.4)
    assert "topk_similarity" in {change.signal for change in watched.update(darker) if change.on}


def test_what_is_allowed_holds_the_true_means_of_both_halves_and_not_much_more() -> None:
    """25 blocks by day and by night: the range itself may miss them by less than the smallest effect."""
    baseline = Baseline.learn("release", days(1, 7, 0.1, per_day=10_000), monitor())
    watched = monitor(baseline)
    for signal, alarm in zip(watched.queries.signals, watched.queries.alarms, strict=True):
        lower, upper = baseline.bounds[signal.name]
        for mean in (0.7, 0.5):
            truth = signal.variables(traffic(np.random.default_rng(4), 100_000, mean=mean)).mean(axis=0)
            assert alarm.bounds.contain(truth)
            # Some three standard deviations of a block's mean, the largest of 350.
            assert np.minimum(truth - lower, upper - truth).max() < 0.12


def test_the_range_is_that_of_block_means_drawn_together_by_what_lasts() -> None:
    """By the root of the share of their variance that is neither between neighbours nor what chance alone gives."""
    watched = monitor()
    means = [each.fifth.block for each in watched.weigh(days(1, 7, 0.05)) if each.fifth.block is not None]
    ranges = learnt(1, 0.05).bounds
    lower = [low for signal in watched.queries.signals for low in ranges[signal.name].lower]
    upper = [high for signal in watched.queries.signals for high in ranges[signal.name].upper]
    factors = []
    for column, (low, high) in enumerate(zip(lower, upper, strict=True)):
        series = [float(block[column]) for block in means]
        average = sum(series) / len(series)
        variance = sum((x - average) ** 2 for x in series) / len(series)
        steps = [(y - x) ** 2 for x, y in itertools.pairwise(series)]
        noise = max(statistics.median(steps) / (2 * 0.6744897501960817**2), average * (1 - average) / 200)
        factors.append(max(0.0, 1 - noise / variance) ** 0.5)
        assert low == pytest.approx(max(0, average + factors[-1] * (min(series) - average)))
        assert high == pytest.approx(min(1, average + factors[-1] * (max(series) - average)))
    assert max(factors) > 0.8
    assert min(factors) < 0.5


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_without_a_swing_it_hardly_widens_anything(seed: int) -> None:
    baseline = learnt(seed, swing=0.0)
    for signal in monitor().queries.signals:
        calibrated = signal.calibrated
        widened = calibrated.widened(baseline.bounds[signal.name])
        assert (calibrated.lower - widened.lower).max() < 0.02
        assert (widened.upper - calibrated.upper).max() < 0.02


def test_it_says_what_it_was_learnt_from() -> None:
    baseline = learnt()
    assert baseline.release == "release"
    assert (baseline.first, baseline.last) == ("2024-01-01T00:00:00+00:00", "2024-01-07T23:59:38+00:00")
    assert (baseline.days, baseline.queries, baseline.block, baseline.blocks) == (7, 28_000, 200, 140)
    assert {*baseline.signals} == {"topk_similarity", "roe", "empty_responses", "dropped_share"}


def test_too_few_days_are_refused() -> None:
    with pytest.raises(InputError, match=r"6 days \(UTC\) and 120 blocks .* needs 7 days"):
        Baseline.learn("release", days(1, 6, 0.1), monitor())


def test_too_few_blocks_are_refused() -> None:
    few = days(1, 7, 0.1, per_day=570)
    with pytest.raises(InputError, match="7 days .* 19 blocks of 200 .* 20 blocks"):
        Baseline.learn("release", few, monitor())
    Baseline.learn("release", few, monitor(rules=Rules(block=100)))


def test_the_same_queries_again_and_again_are_too_few_blocks() -> None:
    seen = days(1, 7, 0.1)
    seen.key[:] = np.resize(np.arange(150, dtype=np.uint64), len(seen))
    with pytest.raises(InputError, match="0 blocks"):
        Baseline.learn("release", seen, monitor())


def test_no_query_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="0 days"):
        Baseline.learn("release", days(1, 1, 0.1).take(slice(0)), monitor())


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    path = baseline_path(tmp_path / "new" / "folder", "release")
    baseline = learnt()
    baseline.save(path)
    assert path.name == "baseline-release.json"
    assert load_baseline(path, "release", monitor()) == baseline
    assert [each.name for each in path.parent.iterdir()] == [path.name]  # nothing is left of the staging


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        learnt().save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    learnt(seed=2).save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() != (tmp_path / "two").read_bytes()


def test_what_was_there_before_stays_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "baseline.json"
    before = learnt()
    before.save(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        learnt(seed=2).save(path)
    assert load_baseline(path, "release", monitor()) == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.timeout(60)
def test_nobody_ever_sees_half_a_file(tmp_path: Path) -> None:
    """While one writes two baselines in turn, another reads one of them each time, until it has seen both often."""
    path = tmp_path / "baseline.json"
    both = [learnt(), learnt(seed=2)]
    both[0].save(path)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            for each in both:
                each.save(path)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        watched = monitor()
        read = [0, 0]
        while min(read) < 20:
            read[both.index(load_baseline(path, "release", watched))] += 1
    finally:
        done.set()
        writer.join()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("baseline") / "baseline.json"
    learnt().save(path)
    return path.read_bytes()


def refused(path: Path, match: str | None = None) -> None:
    """In one sentence, which names the file once and says what to do, and brings nothing along that moves a cursor."""
    with pytest.raises(InputError, match=match) as error:
        load_baseline(path, "release", monitor())
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert message.count(str(path)) == 1
    assert message.endswith("; make it again with `taugate drift baseline`")
    assert message.isprintable()
    assert len(message) < 500


def test_a_changed_digit_is_found(saved: bytes, tmp_path: Path) -> None:
    """Every fifth one, unless the number is the same all the same: two decimals may be one float."""
    path = tmp_path / "baseline.json"
    path.write_bytes(saved)
    watched = monitor()
    whole = load_baseline(path, "release", watched)
    digits = [place for place, byte in enumerate(saved) if chr(byte).isdigit()]
    found = 0
    for place in digits[::5]:
        changed = bytearray(saved)
        changed[place] = ord(str((int(chr(changed[place])) + 1) % 10))
        path.write_bytes(changed)
        try:
            assert load_baseline(path, "release", watched) == whole
        except InputError as error:
            assert str(error).startswith(f"{path}: ")
            found += 1
    assert found > 0.9 * len(digits[::5])


@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_a_file_cut_short_is_refused(saved: bytes, tmp_path: Path, part: float) -> None:
    path = tmp_path / "baseline.json"
    path.write_bytes(saved[: int(part * len(saved))])
    refused(path, "damaged, or no baseline")


@pytest.mark.parametrize(
    "content",
    [b"queries", b"[]", b"{}", b"null", b"\xff\xfe", b"[" * 100_000, b'{"baseline": {}, "sha256": ""}'],
    ids=["words", "a list", "an object", "null", "no UTF-8", "nested", "an empty one"],
)
def test_what_is_no_baseline_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "baseline.json"
    path.write_bytes(content)
    refused(path, "damaged, or no baseline")


def missing(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("elsewhere"))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def endless(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("change", [missing, folder, link_to_itself, link_to_nothing, pipe, endless])
@pytest.mark.timeout(20)
def test_what_stands_in_its_place_is_refused(saved: bytes, tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "baseline.json"
    path.write_bytes(saved)
    change(path)
    refused(path)


def test_a_link_to_one_is_one(saved: bytes, tmp_path: Path) -> None:
    """Kubernetes mounts files so."""
    (tmp_path / "elsewhere").write_bytes(saved)
    (tmp_path / "baseline.json").symlink_to(tmp_path / "elsewhere")
    assert load_baseline(tmp_path / "baseline.json", "release", monitor()) == learnt()


def sealed(saved: bytes, path: Path, change: Callable[[dict], object]) -> None:
    """A file with another content, and the digest of that."""
    content = json.loads(saved)["baseline"]
    change(content)
    Baseline.model_validate(content).save(path)


def without_signal(content: dict) -> None:
    del content["signals"]["roe"]


def further_signal(content: dict) -> None:
    content["signals"]["more"] = content["signals"]["roe"]


def further_variable(content: dict) -> None:
    for end in ("lower", "upper"):
        content["signals"]["roe"][end].append(0.5)


def upside_down(content: dict) -> None:
    content["signals"]["roe"] = {"lower": [0.5], "upper": [0.25]}


@pytest.mark.parametrize("change", [without_signal, further_signal, further_variable, upside_down])
def test_other_signals_are_refused(saved: bytes, tmp_path: Path, change: Callable[[dict], object]) -> None:
    path = tmp_path / "baseline.json"
    sealed(saved, path, change)
    refused(path, "its signals are not those of this version")


def test_one_of_another_release_is_refused(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    sealed(saved, path, lambda content: content.update(release="20240101-abc"))
    refused(path, "belongs to release '?20240101-abc'?, not to '?release")


def test_what_it_says_of_its_release_is_cut_short_in_the_message(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    sealed(saved, path, lambda content: content.update(release="\x1b[2J" + "x" * 100_000))
    refused(path, "belongs to release|damaged")


def test_one_of_fewer_days_is_refused(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    sealed(saved, path, lambda content: content.update(days=3))
    refused(path, "covers 3 days")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-0.1", "1.1", "1e999", '"0.5"', "null", "true"])
def test_a_bound_that_is_no_share_is_refused(saved: bytes, tmp_path: Path, number: str) -> None:
    path = tmp_path / "baseline.json"
    content = json.loads(saved)
    content["baseline"]["signals"]["roe"]["lower"] = ["HERE"]
    path.write_text(json.dumps(content).replace('"HERE"', number))
    refused(path, "damaged")


def test_of_another_version_of_the_file_is_refused(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    content = json.loads(saved)
    content["baseline"]["schema_version"] = 2
    path.write_text(json.dumps(content))
    refused(path, "damaged, or no baseline")
