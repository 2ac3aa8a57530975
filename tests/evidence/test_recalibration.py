"""Beta calibration: the map of the paper, which makes an overconfident model honest and changes no cut."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from taugate.evidence.relevance.fitting import map_probabilities
from taugate.policy.relevance import BetaCalibration, Logistic

FEATURES = 3
MODEL = Logistic(np.array([0.1, 0.0, -0.2]), np.array([1.0, 2.0, 0.5]), np.array([1.5, -2.0, 0.7]), -0.4)


def paper(p: np.ndarray, a: float, b: float, c: float) -> np.ndarray:
    """Kull et al.: 1 / (1 + 1 / (e^c · p^a / (1 − p)^b))."""
    return 1 / (1 + 1 / (np.exp(c) * p**a / (1 - p) ** b))


def world(queries: int, truth: BetaCalibration, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features, and labels whose true probabilities are a map of the model's."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(queries, 5, FEATURES))
    return values, rng.random((queries, 5)) < paper(MODEL.probability(values), truth.a, truth.b, truth.c)


def fitted(p: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """a, b and c by a minimiser that knows nothing of logistic regression, to Platt's targets."""
    positive, negative = relevant.sum(), (~relevant).sum()
    target = np.where(relevant, (positive + 1) / (positive + 2), 1 / (negative + 2))

    def loss(abc: np.ndarray) -> float:
        z = abc[0] * np.log(p) - abc[1] * np.log(1 - p) + abc[2]
        return float((target * np.logaddexp(0, -z) + (1 - target) * np.logaddexp(0, z)).sum())

    return minimize(loss, [1.0, 1.0, 0.0], method="BFGS").x


TRUTHS = [BetaCalibration(0.5, 0.5, 0.3), BetaCalibration(1.6, 0.6, -0.4), BetaCalibration(0.7, 2.0, 0.2)]


@pytest.mark.parametrize("truth", TRUTHS)
def test_recalibration_equals_paper_map(truth: BetaCalibration) -> None:
    values, relevant = world(400, truth)
    message = MODEL.probability(values)
    result = map_probabilities(MODEL, values, relevant)
    literal = paper(message, *fitted(message.ravel(), relevant.ravel()))
    np.testing.assert_allclose(result.probability(values), literal, atol=1e-3)
    assert result.recalibration.kind == "beta"


@pytest.mark.parametrize("truth", TRUTHS)
def test_recalibration_recovers_true_probabilities(truth: BetaCalibration) -> None:
    result = map_probabilities(MODEL, *world(20_000, truth))
    values, _ = world(1000, truth, seed=1)
    true = paper(MODEL.probability(values), truth.a, truth.b, truth.c)
    assert np.abs(result.probability(values) - true).max() < 0.03
    assert np.abs(MODEL.probability(values) - true).max() > 0.1


@pytest.mark.parametrize("truth", TRUTHS)
def test_recalibration_preserves_order(truth: BetaCalibration) -> None:
    """Sorted by the model as it was, what the map says rises; so each threshold has one that keeps the same."""
    values, relevant = world(400, truth)
    before, after = MODEL.log_odds(values).ravel(), map_probabilities(MODEL, values, relevant).log_odds(values).ravel()
    assert (np.diff(after[np.argsort(before)]) > 0).all()


def test_falling_map_becomes_platt_line() -> None:
    """The likelier the model calls a result, the less it says: ln p would be given a weight below 0."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 5, FEATURES))
    odds = MODEL.log_odds(values)
    relevant = rng.random(odds.shape) < expit(np.where(odds < 0, -0.4 * odds - 3, 2 * odds - 3))
    actual = map_probabilities(MODEL, values, relevant).recalibration
    assert actual.kind == "platt"
    assert actual.a == actual.b > 0


def test_platt_line_is_exact() -> None:
    odds = np.linspace(-40, 40, 1001)
    assert (BetaCalibration().apply(odds) == odds).all()
    assert BetaCalibration().kind == "none"
    line = BetaCalibration(0.7, 0.7, -0.2)
    assert (line.apply(odds) == 0.7 * odds - 0.2).all()
    np.testing.assert_allclose(BetaCalibration(0.7, 0.7 + 1e-12, -0.2).apply(odds), line.apply(odds), atol=1e-9)


def test_separable_labels_give_finite_map() -> None:
    values, _ = world(40, BetaCalibration())
    result = map_probabilities(MODEL, values, MODEL.log_odds(values) > 0)
    message = result.probability(values)
    assert np.isfinite(message).all()
    assert 0 < message.min() < 0.5 < message.max() < 1


@pytest.mark.parametrize("labels", ["all", "none", "reversed"])
def test_uninformative_labels_keep_model(labels: str) -> None:
    values, relevant = world(200, BetaCalibration())
    relevant = {"all": np.ones_like(relevant), "none": np.zeros_like(relevant), "reversed": ~relevant}[labels]
    assert map_probabilities(MODEL, values, relevant) is MODEL


def test_same_data_give_same_bits() -> None:
    values, relevant = world(300, TRUTHS[1])
    first, second = map_probabilities(MODEL, values, relevant), map_probabilities(MODEL, values.copy(), relevant)
    assert first.recalibration == second.recalibration
    assert first.weights.tobytes() == second.weights.tobytes()
