"""Distances of samples, against SciPy and the definition."""

import numpy as np
import pytest
from scipy import stats

from taugate.drift.signals import kolmogorov_smirnov, population_stability, wasserstein


@pytest.fixture(params=[(300, 500, 0.0), (500, 100, 0.2), (50, 50, 3.0)])
def samples(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
    live, reference, shift = request.param
    rng = np.random.default_rng(0)
    # rounded, so that there are ties
    return (
        rng.normal(shift, 1, live).round(1).astype(np.float32),
        rng.normal(0, 1, reference).round(1).astype(np.float32),
    )


def test_distances_match_scipy(samples: tuple[np.ndarray, np.ndarray]) -> None:
    assert kolmogorov_smirnov(*samples) == pytest.approx(stats.ks_2samp(*samples).statistic, abs=1e-12)
    assert wasserstein(*samples) == pytest.approx(stats.wasserstein_distance(*samples), abs=1e-6)


def test_psi_matches_definition(samples: tuple[np.ndarray, np.ndarray]) -> None:
    live, reference = (sample.astype(np.float64) for sample in samples)
    edges = np.percentile(reference, range(10, 100, 10)).astype(np.float32)
    psi = 0.0
    for low, high in zip([-np.inf, *edges], [*edges, np.inf], strict=True):
        p, q = (max(((sample >= low) & (sample < high)).mean(), 1e-4) for sample in (live, reference))
        psi += (p - q) * np.log(p / q)
    assert population_stability(*samples) == pytest.approx(psi, abs=1e-9)


def test_distance_of_sample_from_itself_is_zero() -> None:
    sample = np.random.default_rng(0).random(100).astype(np.float32)
    assert (
        kolmogorov_smirnov(sample, sample) == wasserstein(sample, sample) == population_stability(sample, sample) == 0
    )
