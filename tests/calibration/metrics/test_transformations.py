"""Transformations of Table 7 do to the documents what their names say."""

import numpy as np
import pytest

from taugate.calibration.metrics.embeddings import full_whitening, isotropy, standardisation, top_removal
from taugate.policy.arrays import Float32
from taugate.retrieval.vectors import Projection
from tests.vectors import unit


@pytest.fixture(scope="module")
def documents() -> Float32:
    """Vectors with a common direction, and one coordinate that never varies."""
    drawn = np.random.default_rng(0).standard_normal((400, 24)) * np.linspace(0.1, 2, 24) + 1
    drawn[:, 5] = 0
    return unit(drawn)


def _moved(documents: Float32, projection: Projection) -> np.ndarray:
    return (documents - projection.mean) @ projection.components


def test_standardisation_gives_coordinates_unit_deviation(documents: Float32) -> None:
    moved = _moved(documents, standardisation(documents))
    assert moved.mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert np.delete(moved.std(axis=0), 5) == pytest.approx(1, abs=1e-5)
    assert not moved[:, 5].any()


def test_whitening_gives_components_unit_variance(documents: Float32) -> None:
    projection = full_whitening(documents)
    covariance = np.cov(_moved(documents, projection).T, bias=True)
    used = np.diag(covariance) > 0.5
    assert used.sum() == 23
    assert covariance[np.ix_(used, used)] == pytest.approx(np.eye(23), abs=1e-4)
    assert isotropy(projection.apply(documents)).i_b > isotropy(documents).i_b


def test_removal_takes_first_component_away(documents: Float32) -> None:
    covariance = np.cov(documents.astype(np.float64).T)
    first = np.linalg.eigh(covariance)[1][:, -1]
    moved = _moved(documents, top_removal(documents))
    assert moved @ first == pytest.approx(0, abs=1e-6)
    assert np.linalg.matrix_rank(moved, tol=1e-3) == 22
