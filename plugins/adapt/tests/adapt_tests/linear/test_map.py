"""The map, the whitening and the adapter on vectors whose answer is known."""

import numpy as np
import pytest

from taugate.release.adaptation import WhiteningRecord
from taugate_adapt.linear import LinearMap, PrincipalComponents

RNG = np.random.default_rng(0)


def units(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def vectors(count: int = 400, dimension: int = 6) -> np.ndarray:
    """Unit vectors that share a direction, and vary far more in some directions than in others."""
    scales = np.geomspace(1, 0.05, dimension)
    return units(RNG.standard_normal((count, dimension)) * scales + np.ones(dimension))


def test_map_is_affine_and_normalised() -> None:
    weight, bias = RNG.standard_normal((4, 4)), RNG.standard_normal(4)
    rows = RNG.standard_normal((5, 4)).astype(np.float32)
    expected = rows @ weight.T + bias
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert LinearMap.from_float64(weight, bias).apply(rows) == pytest.approx(expected, abs=1e-5)


def test_composed_maps_are_one_map() -> None:
    first = LinearMap.from_float64(RNG.standard_normal((4, 4)), RNG.standard_normal(4))
    second = RNG.standard_normal((4, 4)).astype(np.float32)
    rows = RNG.standard_normal((5, 4)).astype(np.float32)
    both = LinearMap(second, np.zeros(4, dtype=np.float32)).apply(first.apply(rows))
    assert first.then(second).apply(rows) == pytest.approx(both, abs=1e-5)


def test_full_whitening_equalises_variances() -> None:
    rows = vectors(20_000)
    complete = PrincipalComponents.fit(rows).whitening(WhiteningRecord(centring=1, exponent=0.5))
    images = rows @ complete.weight.T + complete.bias
    variances = np.linalg.eigvalsh(np.cov(images.T))
    assert images.mean(axis=0) == pytest.approx(0, abs=1e-4)
    assert variances.max() / variances.min() < 1.1


def test_zero_whitening_changes_nothing() -> None:
    rows = vectors()
    nothing = PrincipalComponents.fit(rows).whitening(WhiteningRecord(centring=0, exponent=0))
    assert nothing.apply(rows) == pytest.approx(rows, abs=1e-6)


def test_constant_component_stays_finite() -> None:
    rows = vectors()
    rows[:, 0] = 0
    learned = PrincipalComponents.fit(rows).whitening(WhiteningRecord(centring=1, exponent=0.5))
    assert np.isfinite(learned.apply(rows)).all()
