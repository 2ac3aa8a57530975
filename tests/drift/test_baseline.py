"""Baselines: the range of an ordinary week raises no alarm, and too little traffic gives no baseline."""

import itertools
import statistics

import numpy as np
import pytest

from taugate.drift.monitor import Baseline
from taugate.drift.signals import Rules
from taugate.errors import InputError
from tests.drift.similarities import traffic
from tests.drift.weeks import days, learnt, monitor


def test_baseline_covers_days_and_nights() -> None:
    fortnight = days(2, 14, 0.1)
    alarms = [change for change in monitor().update(fortnight) if change.on]
    assert len(alarms) > 10  # nearly every night
    assert monitor(learnt()).update(fortnight) == []


def test_shift_beyond_baseline_raises_alarm() -> None:
    watched = monitor(learnt())
    watched.update(days(2, 7, 0.1))
    darker = traffic(np.random.default_rng(3), 8000, mean=0.4)
    assert "topk_similarity" in {change.signal for change in watched.update(darker) if change.on}


def test_baseline_bounds_contain_true_means() -> None:
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


def test_range_shrinks_block_means_by_lasting_variance() -> None:
    """By the root of the share of their variance that is neither between neighbours nor what chance alone gives."""
    watched = monitor()
    means = [each.fifth.block for each in watched.process(days(1, 7, 0.05)) if each.fifth.block is not None]
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
def test_baseline_without_swing_hardly_widens_bounds(seed: int) -> None:
    baseline = learnt(seed, swing=0.0)
    for signal in monitor().queries.signals:
        calibrated = signal.calibrated
        widened = calibrated.widened(baseline.bounds[signal.name])
        assert (calibrated.lower - widened.lower).max() < 0.02
        assert (widened.upper - calibrated.upper).max() < 0.02


def test_baseline_records_its_source() -> None:
    baseline = learnt()
    assert baseline.release == "release"
    assert (baseline.first, baseline.last) == ("2024-01-01T00:00:00+00:00", "2024-01-07T23:59:38+00:00")
    assert (baseline.days, baseline.queries, baseline.block, baseline.blocks) == (7, 28_000, 200, 140)
    assert {*baseline.signals} == {"topk_similarity", "roe", "empty_responses", "dropped_share"}


def test_baseline_needs_seven_days() -> None:
    with pytest.raises(InputError, match=r"6 days \(UTC\) and 120 blocks .* needs 7 days"):
        Baseline.learn("release", days(1, 6, 0.1), monitor())


def test_baseline_needs_enough_blocks() -> None:
    few = days(1, 7, 0.1, per_day=570)
    with pytest.raises(InputError, match="7 days .* 19 blocks of 200 .* 20 blocks"):
        Baseline.learn("release", few, monitor())
    Baseline.learn("release", few, monitor(rules=Rules(block=100)))


def test_repeated_queries_give_no_baseline() -> None:
    seen = days(1, 7, 0.1)
    seen.key[:] = np.resize(np.arange(150, dtype=np.uint64), len(seen))
    with pytest.raises(InputError, match="0 blocks"):
        Baseline.learn("release", seen, monitor())


def test_empty_log_gives_no_baseline() -> None:
    with pytest.raises(InputError, match="0 days"):
        Baseline.learn("release", days(1, 1, 0.1).take(slice(0)), monitor())
