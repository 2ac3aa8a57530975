"""The smallest shift in a release's record is detected by its alarms, and a much smaller one is not."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from taugate.drift.alarm import WITHIN, sensitivity
from taugate.drift.monitor import Monitor
from taugate.drift.observations import Observations, calibration_observations
from taugate.drift.signals import theta_of
from taugate.release.evidence import DriftRecord, Shift
from tests.drift.similarities import reference, traffic

CALIBRATION = reference(np.random.default_rng(0))
RECORD = sensitivity(CALIBRATION, 5)
RUNS = 12


def found(signal: str, change: Callable[[Observations, np.random.Generator], Observations]) -> int:
    """In how many runs of so many queries the alarm of the signal goes on."""
    alarms = 0
    for run in range(RUNS):
        rng = np.random.default_rng([1, run])
        drawn = calibration_observations(CALIBRATION).take(rng.integers(0, len(CALIBRATION), size=WITHIN))
        seen = replace(drawn, key=np.arange(WITHIN, dtype=np.uint64))
        changes = Monitor(CALIBRATION, theta_of(CALIBRATION, 5)).update(change(seen, rng))
        alarms += any(each.signal == signal for each in changes)
    return alarms


def lower(by: float) -> Callable[[Observations, np.random.Generator], Observations]:
    return lambda seen, _: replace(seen, top=seen.top + np.float32(by))


def emptied(points: float) -> Callable[[Observations, np.random.Generator], Observations]:
    def change(seen: Observations, rng: np.random.Generator) -> Observations:
        lost = rng.random(WITHIN) < points / (seen.kept > 0).mean()
        return replace(seen, kept=np.where(lost, 0, seen.kept).astype(np.float32))

    return change


def shift(record: DriftRecord, signal: str, way: str) -> Shift:
    found = getattr(record.signals[signal], way)
    assert found is not None
    return found


def test_smallest_fall_of_similarities_is_detected() -> None:
    smallest = shift(RECORD, "topk_similarity", "lower")
    assert smallest.points < 0
    assert found("topk_similarity", lower(smallest.points)) >= 0.75 * RUNS
    assert found("topk_similarity", lower(smallest.points / 3)) == 0


def test_smallest_rise_of_similarities_is_detected() -> None:
    smallest = shift(RECORD, "topk_similarity", "higher")
    assert smallest.points > 0
    assert found("topk_similarity", lower(smallest.points)) >= 0.75 * RUNS


def test_smallest_rise_of_empty_replies_is_detected() -> None:
    smallest = shift(RECORD, "empty_responses", "higher")
    assert found("empty_responses", emptied(smallest.points)) >= 0.75 * RUNS
    assert found("empty_responses", emptied(smallest.points / 3)) == 0


def test_larger_calibration_detects_smaller_shifts() -> None:
    more = sensitivity(reference(np.random.default_rng(0), 20_000), 5)
    for signal, way in (("topk_similarity", "lower"), ("empty_responses", "higher"), ("quality", "lower")):
        assert abs(shift(more, signal, way).effect) < abs(shift(RECORD, signal, way).effect)


def test_immovable_signal_has_no_shift() -> None:
    everything = np.full(len(CALIBRATION), CALIBRATION.top.shape[1])
    record = sensitivity(replace(CALIBRATION, kept=everything, correct_kept=everything > 0), 5)
    assert record.signals["empty_responses"].lower is None
    assert record.signals["dropped_share"].lower is None
    assert record.within == WITHIN


def test_sensitivity_is_reproducible() -> None:
    assert sensitivity(CALIBRATION, 5) == RECORD


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_sensitivity_works_with_few_queries(queries: int) -> None:
    record = sensitivity(reference(np.random.default_rng(0), queries), 5)
    assert {*record.signals} == {*RECORD.signals}
    assert not Monitor(reference(np.random.default_rng(0), queries), 0.0).update(traffic(np.random.default_rng(1), 500))
