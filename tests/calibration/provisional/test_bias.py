"""The bias of generated queries: the interval against literal sums and known truth, and the shipped table."""

import numpy as np
import pytest
from scipy import stats

from taugate.calibration.provisional import MeasuredSet, expected_bias, prediction_interval, read_table


def measured(name: str, encoder: str, accuracy: float, loss: float) -> MeasuredSet:
    """A data set on which generated queries have so much more accuracy and loss than human ones."""
    return MeasuredSet(name, encoder, 0.5 + accuracy, 0.5, 0.2 + loss, 0.2)


def test_prediction_interval_equals_hand_calculation() -> None:
    """Four differences, worked out by hand: s = .1 · √(20/12), t(.975, 3) = 3.182446."""
    result = prediction_interval([0.1, 0.2, 0.3, 0.4])
    half = 3.182446 * 0.1 * (5 / 3) ** 0.5 * (5 / 4) ** 0.5
    assert result.mean == pytest.approx(0.25)
    assert (result.lower, result.upper) == (pytest.approx(0.25 - half, abs=1e-6), pytest.approx(0.25 + half, abs=1e-6))


@pytest.mark.parametrize("sets", [2, 3, 6, 12])
def test_prediction_interval_covers_next_set(sets: int) -> None:
    """Biases of data sets are normal around .1: the interval from m of them holds the next one at its nominal rate."""
    rounds, rng = 4000, np.random.default_rng(22)
    draws = rng.normal(0.1, 0.02, size=(rounds, sets + 1))
    covered = 0
    for *known, following in draws.tolist():
        result = prediction_interval(known)
        covered += result.lower <= following <= result.upper
    assert covered / rounds == pytest.approx(0.95, abs=3 * (0.95 * 0.05 / rounds) ** 0.5)


def test_confidence_interval_undercovers_next_set() -> None:
    """The mistake that the factor √(1 + 1/m) avoids: of six data sets, √(1/m) covers the next one far too seldom."""
    rng, m, rounds = np.random.default_rng(23), 6, 2000
    draws = rng.normal(0.1, 0.02, size=(rounds, m + 1))
    known, following = draws[:, :m], draws[:, m]
    half = stats.t.ppf(0.975, m - 1) * known.std(axis=1, ddof=1) / m**0.5
    assert np.mean(np.abs(following - known.mean(axis=1)) <= half) < 0.75


def test_encoders_of_set_are_averaged() -> None:
    once = [measured("a", "x", 0.1, -0.02), measured("b", "x", 0.3, -0.04), measured("c", "x", 0.2, 0.0)]
    twice = [measured("a", "y", 0.05, -0.02), *once, measured("a", "z", 0.15, -0.02)]
    result, again = expected_bias(once), expected_bias(twice)
    assert result is not None
    assert again is not None
    for one, other in ((result, again), (result.loss, again.loss)):
        assert (one.mean, one.lower, one.upper) == pytest.approx((other.mean, other.lower, other.upper))
    assert (result.mean, result.sets) == (pytest.approx(0.2), 3)
    assert result.loss.mean == pytest.approx(-0.02)


@pytest.mark.parametrize("table", [[], [measured("a", "x", 0.1, 0.0), measured("a", "y", 0.2, 0.0)]])
def test_single_data_set_gives_none(table: list[MeasuredSet]) -> None:
    assert expected_bias(table) is None


def test_limits_are_clipped_to_shares() -> None:
    result = prediction_interval([-0.9, 0.9])
    assert (result.lower, result.upper) == (-1, 1)


def test_shipped_table_holds_shares() -> None:
    table = read_table()
    figures = [
        figure
        for row in table
        for figure in (row.accuracy_generated, row.accuracy_human, row.loss_generated, row.loss_human)
    ]
    assert all(0 <= figure <= 1 for figure in figures)
    assert len({(row.set, row.encoder) for row in table}) == len(table) == 14
    assert len({row.set for row in table}) == 7
