"""Δ_M agrees with a literal transcription of the thresholds paper, §2.6, and is right where the truth is known."""

import math

import numpy as np
import pytest

from taugate.calibration.metrics.embeddings import separation
from tests.vectors import unit


def gaussian(n: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


def test_separation_equals_paper_definition() -> None:
    """{min ‖E(d), E(d′)‖₂ : d ∈ D, d′ ∈ D′}, with |Δ| = |D|."""
    domain, general = unit(gaussian(70, 24, 1) + 1), unit(gaussian(30, 24, 2))
    paper = []
    for d in domain.tolist():
        distances = [math.sqrt(sum((a - b) ** 2 for a, b in zip(d, e, strict=True))) for e in general.tolist()]
        paper.append(min(distances))
    result = separation(domain, general)
    assert len(result) == len(domain)
    assert result == pytest.approx(paper, abs=1e-6)


def test_separation_of_equal_and_opposite_texts() -> None:
    axes = np.eye(4, dtype=np.float32)
    assert separation(axes[:2], axes[1:3]) == pytest.approx([math.sqrt(2), 0], abs=1e-7)
    assert separation(-axes[:1], axes[:1]) == pytest.approx([2], abs=1e-7)


def test_same_set_ignores_own_distance() -> None:
    axes = np.eye(3, dtype=np.float32)
    assert separation(axes, axes, same=True) == pytest.approx([math.sqrt(2)] * 3)


def test_separation_is_independent_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    domain, general = unit(gaussian(50, 8, 1)), unit(gaussian(20, 8, 2))
    complete, alone = separation(domain, general), separation(domain, domain, same=True)
    monkeypatch.setattr("taugate.calibration.metrics.embeddings._BLOCK_NUMBERS", 150)
    assert separation(domain, general) == pytest.approx(complete, abs=1e-12)
    assert separation(domain, domain, same=True) == pytest.approx(alone, abs=1e-12)


def test_separation_grows_with_distance() -> None:
    """Two clouds around opposite ends of an axis are further apart the tighter they are."""
    towards = np.eye(16)[0]
    near = separation(unit(gaussian(200, 16, 1) + 2 * towards), unit(gaussian(50, 16, 2)))
    far = separation(unit(gaussian(200, 16, 1) + 9 * towards), unit(gaussian(50, 16, 2) - 9 * towards))
    assert near.max() < far.min()
