"""Whether relevance comes true: bins and expected calibration error against a loop and against known truth."""

import numpy as np
import pytest

from taugate.calibration.metrics.reliability import (
    BINS,
    LIKELY,
    ReliabilitySums,
    brier,
    brier_skill,
    error_interval,
    expected_calibration_error,
    reliability,
)


def sums(said: np.ndarray, true: np.ndarray, labels: np.ndarray | None = None) -> ReliabilitySums:
    """Each query a document of its own where no labels are given."""
    said, true = np.atleast_2d(said), np.atleast_2d(true)
    return ReliabilitySums.by_cluster(said.astype(np.float32), true, np.arange(len(said)) if labels is None else labels)


def ece(said: list[float], true: list[bool]) -> float:
    """Guo et al., eq. 3, result by result; the last bin holds 1.0."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for probability, relevant in zip(said, true, strict=True):
        number = 0
        while number < BINS - 1 and probability >= (number + 1) / BINS:
            number += 1
        bins.setdefault(number, []).append((probability, relevant))
    error = 0.0
    for members in bins.values():
        confidence = sum(probability for probability, _ in members) / len(members)
        accuracy = sum(relevant for _, relevant in members) / len(members)
        error += len(members) / len(said) * abs(accuracy - confidence)
    return error


@pytest.mark.parametrize("seed", range(4))
def test_the_error_is_that_of_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    said = rng.beta(0.4, 1.5, size=(300, 5)).astype(np.float32)
    true = rng.uniform(size=said.shape) < said**2
    counted = sums(said, true, rng.integers(0, 40, size=300))
    bins = reliability(counted)
    assert expected_calibration_error(counted) == pytest.approx(ece(said.ravel().tolist(), true.ravel().tolist()))
    likely = said >= LIKELY
    assert expected_calibration_error(counted, LIKELY) == pytest.approx(
        ece(said[likely].tolist(), true[likely].tolist())
    )
    assert sum(each.results for each in bins) == said.size
    for each in bins:
        inside = (said >= each.lower) & (said < each.upper)
        assert each.results == inside.sum()
        assert each.relevant == pytest.approx(true[inside].mean())
        assert each.relevance == pytest.approx(said[inside].mean())


def test_exactly_one_is_in_the_last_bin_and_exactly_zero_in_the_first() -> None:
    counted = sums(np.array([[1.0, 0.0, 0.95]]), np.array([[True, False, True]]))
    bins = reliability(counted)
    assert [(each.lower, each.upper, each.results) for each in bins] == [(0.0, 0.1, 1), (0.9, 1.0, 2)]
    assert expected_calibration_error(counted) == pytest.approx(0.05 / 3, abs=1e-6)


@pytest.mark.parametrize("edge", [0.1, 0.2, 0.3, 0.5, 0.7])
def test_a_value_on_an_edge_is_in_the_bin_that_begins_there(edge: float) -> None:
    """The float32 number above or at the edge: the one below it belongs to the bin before."""
    above = np.float32(edge) if float(np.float32(edge)) >= edge else np.nextafter(np.float32(edge), np.float32(1))
    below = np.nextafter(above, np.float32(0))
    (low, high) = reliability(sums(np.array([below, above]), np.array([False, True])))
    assert (low.upper, high.lower) == (edge, edge)


def test_empty_bins_are_left_out() -> None:
    bins = reliability(sums(np.array([0.05, 0.55]), np.array([False, True])))
    assert [each.lower for each in bins] == [0.0, 0.5]


def test_what_comes_true_has_hardly_any_error_and_what_does_not_has_its_own() -> None:
    rng = np.random.default_rng(0)
    said = rng.uniform(size=(200_000, 1)).astype(np.float32)
    assert expected_calibration_error(sums(said, rng.uniform(size=said.shape) < said)) < 0.005
    assert expected_calibration_error(sums(said, rng.uniform(size=said.shape) < said / 2)) == pytest.approx(
        0.25, abs=0.005
    )
    never = np.zeros(said.shape, dtype=bool)
    assert expected_calibration_error(sums(said, never)) == pytest.approx(said.mean(), abs=1e-6)


def test_brier_score_and_skill_are_those_of_their_definitions() -> None:
    rng = np.random.default_rng(1)
    said = rng.beta(0.4, 1.5, size=(300, 5)).astype(np.float32)
    true = rng.uniform(size=said.shape) < said
    counted = sums(said, true, rng.integers(0, 40, size=300))
    drawn = counted.drawn(rng)
    score = np.mean((said.astype(float) - true) ** 2)
    assert brier(counted, drawn).mean == pytest.approx(score)
    assert brier_skill(counted, drawn).mean == pytest.approx(1 - score / np.mean((true.mean() - true) ** 2))


@pytest.mark.parametrize("value", [True, False])
def test_where_all_or_none_are_relevant_nothing_can_be_skilful(value: bool) -> None:
    counted = sums(np.full((9, 2), 0.4), np.full((9, 2), value))
    assert brier_skill(counted, counted.drawn(np.random.default_rng(0))).mean == 0


def test_a_draw_is_of_whole_documents() -> None:
    """Two documents: one is always right, the other always wrong, and a draw has 0, 1 or 2 of each."""
    counted = sums(
        np.full((20, 3), 0.95), np.repeat([[True], [False]], 10, axis=0).repeat(3, axis=1), np.arange(20) // 10
    )
    drawn = counted.drawn(np.random.default_rng(0))
    assert set((drawn.true.sum(axis=1) / drawn.results.sum(axis=1)).tolist()) == {0.0, 0.5, 1.0}


def test_the_share_of_a_tenth_with_few_results_says_little() -> None:
    one = reliability(sums(np.array([[0.95]]), np.array([[True]])))[0].interval
    assert one is not None
    assert (one.mean, one.upper) == (1.0, 1.0)
    assert one.lower == pytest.approx(0.025)  # Clopper and Pearson of 1 in 1
    alike = reliability(sums(np.full((40, 1), 0.95), np.ones((40, 1), bool), np.arange(40) // 10))[0].interval
    assert alike is not None
    assert alike.lower == pytest.approx(0.025 ** (1 / 4))  # four documents, as if each were right whole


def covered(documents: int, spread: float, slope: float) -> dict[str, float]:
    """How often intervals hold the truth, of 100 trials; log-odds differ by document and, but for a slope of 1, lie."""
    rng = np.random.default_rng(0)

    def drawn(count: int) -> ReliabilitySums:
        labels = np.repeat(np.arange(count), rng.integers(1, 10, count))
        odds = rng.normal(-1.5, 2, size=(len(labels), 4))
        shift = rng.normal(0, spread, count)[labels][:, None]
        return sums(1 / (1 + np.exp(-odds)), rng.random(odds.shape) < 1 / (1 + np.exp(-slope * odds - shift)), labels)

    truth = drawn(60_000)
    wanted = {"all": expected_calibration_error(truth), "likely": expected_calibration_error(truth, LIKELY)}
    wanted["skill"] = float(truth.whole.brier_skill())
    tenth = {each.lower: each.relevant for each in reliability(truth)}
    held = dict.fromkeys([*wanted, "tenth"], 0.0)
    for _ in range(100):
        sample = drawn(documents)
        bootstraps = sample.drawn(rng)
        intervals = {"all": error_interval(sample, bootstraps), "likely": error_interval(sample, bootstraps, LIKELY)}
        intervals["skill"] = brier_skill(sample, bootstraps)
        for name, each in intervals.items():
            held[name] += (each.lower <= wanted[name] <= each.upper) / 100
        dots = [(each.interval, tenth[each.lower]) for each in reliability(sample)]
        held["tenth"] += np.mean([dot.lower <= true <= dot.upper for dot, true in dots]) / 100
    return held


@pytest.mark.parametrize(("documents", "spread", "slope"), [(80, 0.0, 1.0), (80, 0.7, 1.0), (300, 0.7, 0.6)])
def test_the_intervals_hold_the_truth_though_results_of_a_document_are_alike(
    documents: int, spread: float, slope: float
) -> None:
    for name, share in covered(documents, spread, slope).items():
        assert share >= 0.88, name
