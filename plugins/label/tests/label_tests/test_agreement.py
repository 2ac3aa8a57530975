"""Cohen's κ: the worked example, the places where it has no value, and an interval that covers the truth."""

import numpy as np
import pytest

from taugate_label.verdicts import Vote, agreement, cohen_kappa


def votes(yes_yes: int, yes_no: int, no_yes: int, no_no: int) -> list[Vote]:
    cells = [(True, True)] * yes_yes + [(True, False)] * yes_no + [(False, True)] * no_yes + [(False, False)] * no_no
    return [Vote(number, one, other) for number, (one, other) in enumerate(cells)]


def test_kappa_matches_a_manual_calculation() -> None:
    # 35 of 50 agree: p₀ = .7. The first says yes to 25, the second to 30: pₑ = .5·.6 + .5·.4 = .5. κ = .2 / .5.
    assert cohen_kappa(votes(20, 5, 10, 15)) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("table", "expected"), [((10, 0, 0, 10), 1.0), ((5, 5, 5, 5), 0.0), ((0, 10, 10, 0), -1.0), ((9, 0, 0, 0), None)]
)
def test_kappa_reaches_its_extremes(table: tuple[int, ...], expected: float | None) -> None:
    assert cohen_kappa(votes(*table)) == (expected if expected is None else pytest.approx(expected))
    assert cohen_kappa([]) is None


def test_judges_in_full_agreement_have_no_interval() -> None:
    results = agreement(votes(10, 0, 0, 10))
    assert (results.results, results.equal, results.kappa, results.lower, results.upper) == (20, 20, 1.0, None, None)


def test_kappa_interval_is_jackknife_by_query() -> None:
    rows = [Vote(row % 7, row % 3 == 0, row % 4 == 0 or row % 3 == 0) for row in range(42)]
    without = [cohen_kappa([item for item in rows if item.query != query]) for query in range(7)]
    error = np.sqrt(6 / 7 * sum((item - np.mean(without)) ** 2 for item in without))
    result = agreement(rows)
    margin = 1.959964 * error
    assert (result.lower, result.upper) == pytest.approx((result.kappa - margin, result.kappa + margin))


@pytest.mark.slow
def test_kappa_interval_covers_dependent_results() -> None:
    """Two judges who each err on 15 % of the results, and together on 10 % of the queries."""
    rng = np.random.default_rng(3)

    def draw(queries: int) -> list[Vote]:
        truth = rng.random((queries, 5)) < 0.3
        misread = rng.random((queries, 1)) < 0.1  # by the first judge, as a whole
        one = truth ^ (rng.random((queries, 5)) < 0.15) ^ misread
        other = truth ^ (rng.random((queries, 5)) < 0.15)
        return [Vote(query, bool(one[query, k]), bool(other[query, k])) for query in range(queries) for k in range(5)]

    true = cohen_kappa(draw(100_000))
    results = [agreement(draw(50)) for _ in range(300)]
    covered = np.mean([item.lower <= true <= item.upper for item in results])
    assert 0.91 <= covered <= 0.985
