"""Whether relevance comes true: bins and expected calibration error against a loop and against known truth."""

import numpy as np
import pytest

from calibration.metrics.reliability import BINS, expected_calibration_error, reliability


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
    bins = reliability(said, true)
    assert expected_calibration_error(bins) == pytest.approx(ece(said.ravel().tolist(), true.ravel().tolist()))
    assert sum(each.results for each in bins) == said.size
    for each in bins:
        inside = (said >= each.lower) & (said < each.upper)
        assert each.results == inside.sum()
        assert each.relevant == pytest.approx(true[inside].mean())
        assert each.relevance == pytest.approx(said[inside].mean())


def test_exactly_one_is_in_the_last_bin_and_exactly_zero_in_the_first() -> None:
    bins = reliability(np.array([[1.0, 0.0, 0.95]], dtype=np.float32), np.array([[True, False, True]]))
    assert [(each.lower, each.upper, each.results) for each in bins] == [(0.0, 0.1, 1), (0.9, 1.0, 2)]
    assert expected_calibration_error(bins) == pytest.approx(0.05 / 3, abs=1e-6)


@pytest.mark.parametrize("edge", [0.1, 0.2, 0.3, 0.5, 0.7])
def test_a_value_on_an_edge_is_in_the_bin_that_begins_there(edge: float) -> None:
    """The float32 number above or at the edge: the one below it belongs to the bin before."""
    above = np.float32(edge) if float(np.float32(edge)) >= edge else np.nextafter(np.float32(edge), np.float32(1))
    below = np.nextafter(above, np.float32(0))
    (low, high) = reliability(np.array([below, above]), np.array([False, True]))
    assert (low.upper, high.lower) == (edge, edge)


def test_empty_bins_are_left_out() -> None:
    bins = reliability(np.array([0.05, 0.55], dtype=np.float32), np.array([False, True]))
    assert [each.lower for each in bins] == [0.0, 0.5]


def test_what_comes_true_has_hardly_any_error_and_what_does_not_has_its_own() -> None:
    rng = np.random.default_rng(0)
    said = rng.uniform(size=200_000).astype(np.float32)
    assert expected_calibration_error(reliability(said, rng.uniform(size=said.size) < said)) < 0.005
    assert expected_calibration_error(reliability(said, rng.uniform(size=said.size) < said / 2)) == pytest.approx(
        0.25, abs=0.005
    )
    never = np.zeros(said.size, dtype=bool)
    assert expected_calibration_error(reliability(said, never)) == pytest.approx(said.mean(), abs=1e-6)
