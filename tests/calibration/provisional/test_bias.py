"""The bias of generated queries: the interval against literal sums and known truth, and the shipped table."""

import numpy as np
import pytest
from scipy import stats

from taugate.calibration.provisional.bias import MeasuredSet, expected_bias, prediction_interval, read_table


def measured(name: str, encoder: str, accuracy: float, loss: float) -> MeasuredSet:
    """A data set on which generated queries have so much more accuracy and loss than human ones."""
    return MeasuredSet(name, encoder, 0.5 + accuracy, 0.5, 0.2 + loss, 0.2)


def test_the_interval_is_the_textbook_s() -> None:
    """Four differences, worked out by hand: s = .1 · √(20/12), t(.975, 3) = 3.182446."""
    found = prediction_interval([0.1, 0.2, 0.3, 0.4])
    half = 3.182446 * 0.1 * (5 / 3) ** 0.5 * (5 / 4) ** 0.5
    assert found.mean == pytest.approx(0.25)
    assert (found.lower, found.upper) == (pytest.approx(0.25 - half, abs=1e-6), pytest.approx(0.25 + half, abs=1e-6))


@pytest.mark.parametrize("sets", [2, 3, 6, 12])
def test_it_covers_the_next_data_set_nineteen_times_in_twenty(sets: int) -> None:
    """Biases of data sets are normal around .1: the interval from m of them holds the next one at its nominal rate."""
    rounds, rng = 4000, np.random.default_rng(22)
    draws = rng.normal(0.1, 0.02, size=(rounds, sets + 1))
    covered = 0
    for *known, following in draws.tolist():
        found = prediction_interval(known)
        covered += found.lower <= following <= found.upper
    assert covered / rounds == pytest.approx(0.95, abs=3 * (0.95 * 0.05 / rounds) ** 0.5)


def test_a_confidence_interval_of_the_mean_would_not_cover_it() -> None:
    """The mistake that the factor √(1 + 1/m) avoids: of six data sets, √(1/m) covers the next one far too seldom."""
    rng, m, rounds = np.random.default_rng(23), 6, 2000
    draws = rng.normal(0.1, 0.02, size=(rounds, m + 1))
    known, following = draws[:, :m], draws[:, m]
    half = stats.t.ppf(0.975, m - 1) * known.std(axis=1, ddof=1) / m**0.5
    assert np.mean(np.abs(following - known.mean(axis=1)) <= half) < 0.75


def test_two_encoders_on_one_data_set_are_one_observation() -> None:
    once = [measured("a", "x", 0.1, -0.02), measured("b", "x", 0.3, -0.04), measured("c", "x", 0.2, 0.0)]
    twice = [measured("a", "y", 0.05, -0.02), *once, measured("a", "z", 0.15, -0.02)]
    found, again = expected_bias(once), expected_bias(twice)
    assert found is not None
    assert again is not None
    for one, other in ((found, again), (found.loss, again.loss)):
        assert (one.mean, one.lower, one.upper) == pytest.approx((other.mean, other.lower, other.upper))
    assert (found.mean, found.sets) == (pytest.approx(0.2), 3)
    assert found.loss.mean == pytest.approx(-0.02)


@pytest.mark.parametrize("table", [[], [measured("a", "x", 0.1, 0.0), measured("a", "y", 0.2, 0.0)]])
def test_with_fewer_than_two_data_sets_nothing_is_expected(table: list[MeasuredSet]) -> None:
    assert expected_bias(table) is None


def test_no_limit_is_beyond_a_difference_of_two_shares() -> None:
    found = prediction_interval([-0.9, 0.9])
    assert (found.lower, found.upper) == (-1, 1)


def test_every_figure_of_the_shipped_table_is_a_share() -> None:
    table = read_table()
    figures = [
        figure
        for row in table
        for figure in (row.accuracy_generated, row.accuracy_human, row.loss_generated, row.loss_human)
    ]
    assert all(0 <= figure <= 1 for figure in figures)
    assert len({(row.set, row.encoder) for row in table}) == len(table)
