"""The curves of the report: densities as scipy has them, and thresholds that leave no gap."""

import numpy as np
import pytest
from scipy.stats import gaussian_kde

from taugate.calibration.report.figures import density, drawn, spaced


def test_density_matches_scipy() -> None:
    values = np.random.default_rng(0).normal(0.4, 0.1, 3000).astype(np.float32)
    xs, ys = density(values, -0.2, 1.0)
    assert np.abs(ys - gaussian_kde(values)(xs)).max() < 0.01 * ys.max()
    assert ys.sum() * (xs[1] - xs[0]) == pytest.approx(1, abs=1e-3)
    assert np.isfinite(density(np.full(1, 0.3, dtype=np.float32), 0.0, 1.0)[1]).all()


def test_thresholds_include_tau() -> None:
    scores = np.random.default_rng(0).random((100, 5), dtype=np.float32)
    for kind in ("similarity", "probability"):
        for tau in (None, np.float32(0.3), np.float32(1e-7)):
            found = spaced(scores, kind, tau)
            assert (np.diff(found) > 0).all() and len(found) <= 61 and (tau is None or tau in found)
            assert found[-1] >= 0.99 and found[0] <= max(scores.min(), 1e-4)
    assert len(drawn(np.zeros((5000, 100), dtype=np.int64))) == 1000
