"""Alarms begin with evidence, end with quiet, and are the same however traffic is cut into looks."""

import numpy as np
import pytest

from retrieval.drift.alarm import Change
from retrieval.drift.monitor import Monitor, theta_of
from retrieval.drift.observations import Observations
from tests.retrieval.drift.similarities import reference, traffic


@pytest.fixture
def monitor() -> Monitor:
    calibration = reference(np.random.default_rng(0))
    return Monitor(calibration, theta_of(calibration, 5))


def on(changes: list[Change]) -> set[str]:
    return {change.signal for change in changes if change.on}


def test_traffic_as_at_calibration_gives_no_alarm(monitor: Monitor) -> None:
    rng = np.random.default_rng(1)
    assert not any(monitor.update(traffic(rng, 10_000)) for _ in range(10))
    assert not any(alarm.on for alarm in monitor.alarms)
    assert all(alarm.share_of_threshold < 0.5 for alarm in monitor.alarms)


@pytest.mark.parametrize(
    ("shift", "signal"),
    [
        ({"mean": 0.4}, "topk_similarity"),
        ({"mean": 0.8}, "topk_similarity"),
        ({"mean": 0.4}, "empty_responses"),
        ({"mean": 0.4}, "dropped_share"),
        ({"mean": 0.75}, "dropped_share"),
        ({"random": 0.25}, "roe"),
    ],
)
def test_each_signal_sees_what_it_is_there_for(monitor: Monitor, shift: dict[str, float], signal: str) -> None:
    assert signal in on(monitor.update(traffic(np.random.default_rng(2), 2000, **shift)))


def test_other_random_documents_are_roe_and_nothing_else(monitor: Monitor) -> None:
    assert on(monitor.update(traffic(np.random.default_rng(2), 2000, random=0.25))) == {"roe"}


def test_judged_documents_below_theta(monitor: Monitor) -> None:
    assert on(monitor.feedback(np.full(500, -0.5, dtype=np.float32))) == {"coe"}


def test_a_shift_that_is_certain_and_too_small_to_matter(monitor: Monitor) -> None:
    """A hundredth of a standard deviation, which 200,000 queries show beyond doubt."""
    rng = np.random.default_rng(3)
    assert not any(monitor.update(traffic(rng, 10_000, mean=0.601)) for _ in range(20))


def test_it_ends_after_a_thousand_queries_as_at_calibration_and_begins_again(monitor: Monitor) -> None:
    rng = np.random.default_rng(4)
    assert "topk_similarity" in on(monitor.update(traffic(rng, 1000, mean=0.4)))
    assert monitor.update(traffic(rng, 900)) == []
    ended = [change for change in monitor.update(traffic(rng, 5000)) if change.signal == "topk_similarity"]
    assert [change.on for change in ended] == [False]
    assert not any(alarm.on for alarm in monitor.alarms)
    assert "topk_similarity" in on(monitor.update(traffic(rng, 1000, mean=0.4)))


def test_it_goes_on_while_the_shift_does(monitor: Monitor) -> None:
    rng = np.random.default_rng(5)
    changes = monitor.update(traffic(rng, 20_000, mean=0.5))
    assert [change.on for change in changes if change.signal == "topk_similarity"] == [True]


def test_it_is_the_same_however_traffic_is_cut() -> None:
    calibration = reference(np.random.default_rng(0))
    rng = np.random.default_rng(6)
    parts = [traffic(rng, 3000), traffic(rng, 700, mean=0.45), traffic(rng, 4000)]
    seen = Observations.joined(parts)

    def changes(size: int) -> list[tuple[str, int, bool]]:
        monitor = Monitor(calibration, theta_of(calibration, 5))
        return sorted(
            (change.signal, start + change.row, change.on)
            for start in range(0, len(seen), size)
            for change in monitor.update(seen.take(slice(start, start + size)))
        )

    assert changes(len(seen)) == changes(7) == changes(1000)
    assert len(changes(len(seen))) >= 4


def test_a_reference_of_few_queries_is_allowed_more() -> None:
    few, many = (reference(np.random.default_rng(0), queries) for queries in (50, 5000))
    widths = []
    for calibration in (few, many):
        below, above = Monitor(calibration, theta_of(calibration, 5)).of_queries[0].signal.bounds(0.1)
        widths.append((above - below)[4])
    assert widths[0] > 3 * widths[1]


def test_a_policy_that_never_drops_has_nothing_to_fall_below() -> None:
    calibration = reference(np.random.default_rng(0))
    kept = np.full(len(calibration), 5)
    calibration = type(calibration)(calibration.top, calibration.correct, calibration.random, kept, kept > 0)
    monitor = Monitor(calibration, theta_of(calibration, 5))
    seen = traffic(np.random.default_rng(1), 5000)
    seen = Observations(seen.at, seen.top, seen.random, np.full(5000, 5, dtype=np.float32))
    assert monitor.update(seen) == []
