"""Platt scaling: the map of the paper, which makes an overconfident model honest and changes no cut."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from calibration.relevance.scaling import scaled
from retrieval.relevance.model import Logistic

FEATURES = 3
MODEL = Logistic(np.array([0.1, 0.0, -0.2]), np.array([1.0, 2.0, 0.5]), np.array([1.5, -2.0, 0.7]), -0.4)


def world(queries: int, slope: float, offset: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features, and labels whose true log-odds are slope · the model's + offset."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(queries, 5, FEATURES))
    return values, rng.random((queries, 5)) < expit(slope * MODEL.log_odds(values) + offset)


def platt(odds: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """A and B of the paper as it stands: minimise −Σ t·ln p + (1 − t)·ln(1 − p), p = 1 / (1 + exp(Af + B))."""
    positive, negative = relevant.sum(), (~relevant).sum()
    target = np.where(relevant, (positive + 1) / (positive + 2), 1 / (negative + 2))

    def loss(ab: np.ndarray) -> float:
        z = ab[0] * odds + ab[1]
        return float((target * np.logaddexp(0, z) + (1 - target) * np.logaddexp(0, -z)).sum())

    return minimize(loss, [-1.0, 0.0], method="BFGS").x


@pytest.mark.parametrize(("slope", "offset"), [(0.5, 0.3), (1.0, 0.0), (2.0, -1.0)])
def test_it_is_the_paper_s_map(slope: float, offset: float) -> None:
    values, relevant = world(300, slope, offset)
    a, b = platt(MODEL.log_odds(values).ravel(), relevant.ravel())
    expected = -(a * MODEL.log_odds(values) + b)
    np.testing.assert_allclose(scaled(MODEL, values, relevant).log_odds(values), expected, atol=2e-3)


@pytest.mark.parametrize(("slope", "offset"), [(0.5, 0.3), (2.0, -1.0)])
def test_it_finds_the_true_probabilities(slope: float, offset: float) -> None:
    found = scaled(MODEL, *world(20_000, slope, offset))
    values, _ = world(1000, slope, offset, seed=1)
    truth = expit(slope * MODEL.log_odds(values) + offset)
    assert np.abs(found.probability(values) - truth).max() < 0.02
    assert np.abs(MODEL.probability(values) - truth).max() > 0.1


def test_no_cut_keeps_other_results_than_before() -> None:
    """Sorted by the model as it was, the scaled probabilities rise; so each threshold has one that keeps the same."""
    values, relevant = world(400, 0.6, 0.2)
    before, after = MODEL.log_odds(values).ravel(), scaled(MODEL, values, relevant).log_odds(values).ravel()
    assert (np.diff(after[np.argsort(before)]) > 0).all()


def test_separable_labels_have_a_finite_map() -> None:
    values, _ = world(40, 1, 0)
    found = scaled(MODEL, values, MODEL.log_odds(values) > 0)
    said = found.probability(values)
    assert np.isfinite(found.weights).all()
    assert 0 < said.min() < 0.5 < said.max() < 1


@pytest.mark.parametrize("labels", ["all", "none", "reversed"])
def test_where_nothing_can_be_learned_the_model_stays(labels: str) -> None:
    values, relevant = world(100, -1, 0)  # what it calls likely is rarely so
    relevant = {"all": np.ones_like(relevant), "none": np.zeros_like(relevant), "reversed": relevant}[labels]
    assert scaled(MODEL, values, relevant) is MODEL
