"""Cohen's h, against the values of his table and its own inverse."""

import numpy as np
import pytest

from taugate.drift.signals import cohens_h, shifted


@pytest.mark.parametrize(("share", "reference", "h"), [(0.5, 0.4, 0.201), (0.1, 0.05, 0.193), (1.0, 0.0, np.pi)])
def test_cohens_h_matches_table(share: float, reference: float, h: float) -> None:
    """The first two from Cohen's table 6.2.2: φ(.50) − φ(.40) = 1.571 − 1.369, φ(.10) − φ(.05) = .644 − .451."""
    assert cohens_h(np.array(share), np.array(reference)) == pytest.approx(h, abs=0.0015)
    assert cohens_h(np.array(reference), np.array(share)) == pytest.approx(-h, abs=0.0015)


def test_shifted_inverts_cohens_h() -> None:
    shares = np.array([0.05, 0.3, 0.5, 0.9])
    assert shifted(shifted(shares, 0.2), -0.2) == pytest.approx(shares)
    assert cohens_h(shifted(shares, 0.2), shares) == pytest.approx(np.full(4, 0.2))
    assert shifted(np.array([0.0, 0.02, 0.99]), np.array([-0.1, -0.5, 0.5])) == pytest.approx([0, 0, 1])
