"""Whether relevance comes true: bins and expected calibration error against a loop and against known truth."""

import numpy as np
import pytest

from taugate.evidence.relevance.record import (
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
def test_calibration_error_equals_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    message = rng.beta(0.4, 1.5, size=(300, 5)).astype(np.float32)
    true = rng.uniform(size=message.shape) < message**2
    counted = sums(message, true, rng.integers(0, 40, size=300))
    bins = reliability(counted)
    assert expected_calibration_error(counted) == pytest.approx(ece(message.ravel().tolist(), true.ravel().tolist()))
    likely = message >= LIKELY
    assert expected_calibration_error(counted, LIKELY) == pytest.approx(
        ece(message[likely].tolist(), true[likely].tolist())
    )
    assert sum(item.results for item in bins) == message.size
    for item in bins:
        inside = (message >= item.lower) & (message < item.upper)
        assert item.results == inside.sum()
        assert item.relevant == pytest.approx(true[inside].mean())
        assert item.relevance == pytest.approx(message[inside].mean())


def test_zero_and_one_are_in_outer_bins() -> None:
    counted = sums(np.array([[1.0, 0.0, 0.95]]), np.array([[True, False, True]]))
    bins = reliability(counted)
    assert [(item.lower, item.upper, item.results) for item in bins] == [(0.0, 0.1, 1), (0.9, 1.0, 2)]
    assert expected_calibration_error(counted) == pytest.approx(0.05 / 3, abs=1e-6)


@pytest.mark.parametrize("edge", [0.1, 0.2, 0.3, 0.5, 0.7])
def test_edge_value_is_in_upper_bin(edge: float) -> None:
    """The float32 number above or at the edge: the one below it belongs to the bin before."""
    above = np.float32(edge) if float(np.float32(edge)) >= edge else np.nextafter(np.float32(edge), np.float32(1))
    below = np.nextafter(above, np.float32(0))
    (low, high) = reliability(sums(np.array([below, above]), np.array([False, True])))
    assert (low.upper, high.lower) == (edge, edge)


def test_empty_bins_are_omitted() -> None:
    bins = reliability(sums(np.array([0.05, 0.55]), np.array([False, True])))
    assert [item.lower for item in bins] == [0.0, 0.5]


def test_calibrated_predictions_have_little_error() -> None:
    rng = np.random.default_rng(0)
    message = rng.uniform(size=(200_000, 1)).astype(np.float32)
    assert expected_calibration_error(sums(message, rng.uniform(size=message.shape) < message)) < 0.005
    assert expected_calibration_error(sums(message, rng.uniform(size=message.shape) < message / 2)) == pytest.approx(
        0.25, abs=0.005
    )
    never = np.zeros(message.shape, dtype=bool)
    assert expected_calibration_error(sums(message, never)) == pytest.approx(message.mean(), abs=1e-6)


def test_brier_scores_equal_definitions() -> None:
    rng = np.random.default_rng(1)
    message = rng.beta(0.4, 1.5, size=(300, 5)).astype(np.float32)
    true = rng.uniform(size=message.shape) < message
    counted = sums(message, true, rng.integers(0, 40, size=300))
    drawn = counted.drawn(rng)
    score = np.mean((message.astype(float) - true) ** 2)
    assert brier(counted, drawn).mean == pytest.approx(score)
    assert brier_skill(counted, drawn).mean == pytest.approx(1 - score / np.mean((true.mean() - true) ** 2))


@pytest.mark.parametrize("value", [True, False])
def test_constant_relevance_has_no_skill(value: bool) -> None:
    counted = sums(np.full((9, 2), 0.4), np.full((9, 2), value))
    assert brier_skill(counted, counted.drawn(np.random.default_rng(0))).mean == 0


def test_bootstrap_draws_whole_documents() -> None:
    """Two documents: one is always right, the other always wrong, and a draw has 0, 1 or 2 of each."""
    counted = sums(
        np.full((20, 3), 0.95), np.repeat([[True], [False]], 10, axis=0).repeat(3, axis=1), np.arange(20) // 10
    )
    drawn = counted.drawn(np.random.default_rng(0))
    assert set((drawn.relevant.sum(axis=1) / drawn.results.sum(axis=1)).tolist()) == {0.0, 0.5, 1.0}


def test_few_results_have_wide_interval() -> None:
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
    expected = {"all": expected_calibration_error(truth), "likely": expected_calibration_error(truth, LIKELY)}
    expected["skill"] = float(truth.total.brier_skill())
    tenth = {item.lower: item.relevant for item in reliability(truth)}
    held = dict.fromkeys([*expected, "tenth"], 0.0)
    for _ in range(100):
        sample = drawn(documents)
        bootstraps = sample.drawn(rng)
        intervals = {"all": error_interval(sample, bootstraps), "likely": error_interval(sample, bootstraps, LIKELY)}
        intervals["skill"] = brier_skill(sample, bootstraps)
        for name, item in intervals.items():
            held[name] += (item.lower <= expected[name] <= item.upper) / 100
        dots = [(item.interval, tenth[item.lower]) for item in reliability(sample)]
        held["tenth"] += np.mean([dot.lower <= true <= dot.upper for dot, true in dots]) / 100
    return held


@pytest.mark.slow
@pytest.mark.parametrize(("documents", "spread", "slope"), [(80, 0.0, 1.0), (80, 0.7, 1.0), (300, 0.7, 0.6)])
def test_intervals_cover_truth_with_shared_documents(documents: int, spread: float, slope: float) -> None:
    for name, share in covered(documents, spread, slope).items():
        assert share >= 0.88, name
