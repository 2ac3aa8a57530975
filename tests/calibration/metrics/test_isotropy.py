"""Isotropy agrees with its authors' package and with a literal transcription, and is right where the truth is known."""

import numpy as np
import pytest
from IsoScore.IsoScore import IsoScore

from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.export.model_folder import PROBES
from taugate.calibration.metrics.embeddings import isotropy
from taugate.policy.arrays import Float32
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.vectors import unit


def authors_score(vectors: Float32) -> float:
    return float(IsoScore(vectors.astype(np.float64)))


def gaussian(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


CLOUDS = {
    "isotropic": gaussian(3000, 48),
    "a common direction": gaussian(3000, 48) + 3,
    "few directions": gaussian(3000, 48) * np.geomspace(1, 1e-3, 48),
    "more than a block": gaussian(20_000, 16) * np.linspace(1, 2, 16),
    "fewer vectors than dimensions": gaussian(20, 48),
    "almost the same": 1 + 1e-4 * gaussian(500, 48),
}
clouds = pytest.mark.parametrize("cloud", CLOUDS.values(), ids=CLOUDS)


@clouds
def test_i_b_equals_authors_package(cloud: np.ndarray) -> None:
    vectors = unit(cloud)
    assert isotropy(vectors).i_b == pytest.approx(authors_score(vectors), abs=1e-7)


@clouds
def test_i_a_equals_equation_5_by_svd(cloud: np.ndarray) -> None:
    vectors = unit(cloud)
    v = vectors.astype(np.float64)
    sigma = np.linalg.svd(np.pad(v, ((0, max(0, v.shape[1] - len(v))), (0, 0))), compute_uv=False)
    ones = np.linalg.norm(np.ones(len(v)) @ v)
    expected = (len(v) - ones + 0.5 * sigma.min() ** 2) / (len(v) + ones + 0.5 * sigma.max() ** 2)
    assert isotropy(vectors).i_a == pytest.approx(expected, abs=1e-12)


@pytest.mark.model
@pytest.mark.slow
def test_i_b_of_real_embeddings() -> None:
    encoder = ExportedEncoder.load(exported_encoder(DEFAULT_ENCODER))
    vectors = encoder.embed(encoder.tokenize(PROBES, "document"))
    assert isotropy(vectors).i_b == pytest.approx(authors_score(vectors), abs=1e-7)


def test_isotropic_gaussian_scores_near_1() -> None:
    result = isotropy(unit(gaussian(60_000, 24)))
    assert result.i_a > 0.97
    assert result.i_b > 0.99


def test_i_a_of_balanced_axes_is_1() -> None:
    """The axes and their opposites: ‖1ᵀV‖ = 0 and VᵀV = 2·I, so numerator and denominator are both n + 1."""
    axes = np.vstack([np.eye(8), -np.eye(8)]).astype(np.float32)
    assert isotropy(axes).i_a == 1
    assert isotropy(axes).i_b == pytest.approx(1, abs=1e-12)


def test_dominant_direction_scores_near_0() -> None:
    """Vectors on both sides of one axis: IsoScore sees one direction of d; I_A sees σ_max, but no common direction."""
    directed = gaussian(5000, 32) * ([10.0] + [0.01] * 31)
    assert isotropy(unit(directed)).i_b < 1e-3
    # ... and all on one side of it: I_A is at most (n − n) / (2n).
    directed[:, 0] = 10
    assert isotropy(unit(directed)).i_a < 1e-3


def test_equal_vectors_score_0() -> None:
    result = isotropy(np.tile(unit(gaussian(1, 32)), (1000, 1)))
    assert result.i_b == 0
    assert result.i_a == pytest.approx(0, abs=1e-6)
