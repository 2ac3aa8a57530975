"""Thresholds from few labels, where the threshold that loses exactly the limit is known."""

import numpy as np
import pytest

from taugate.evidence.few_labels.population import loss_scores, losses
from taugate.evidence.few_labels.prediction_powered import LossEstimates, candidate_thresholds
from taugate.evidence.few_labels.shares import JudgedSample, UnjudgedSample
from taugate.policy.arrays import Float64

GRID = np.linspace(0.02, 1.0, 50).astype(np.float32)


def queries(rng: np.random.Generator, count: int) -> tuple[Float64, Float64]:
    """One result each, relevant with a probability that is its score, which is uniform: the loss at τ is τ² / 2.

    Returns:
        Losses and the machine's scores, (count, 50) each; the machine knows the probability.
    """
    decisions = rng.random((count, 1))
    relevant = rng.random((count, 1)) < decisions
    return losses(relevant, decisions, GRID), loss_scores(decisions, decisions, GRID)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "most"), [(25, 0.3), (50, 0.2), (100, 0.1), (100, 0.32)])
@pytest.mark.parametrize("with_machine", [False, True])
def test_safe_threshold_holds_confidence(n: int, most: float, with_machine: bool) -> None:
    rng = np.random.default_rng([n, round(100 * most)])
    best = float(GRID[np.square(GRID.astype(np.float64)) / 2 <= most].max())
    too_strict, held, trials = 0, 0, 400
    for _ in range(trials):
        outcomes, scores = queries(rng, n)
        unjudged = UnjudgedSample(queries(rng, 500)[1], np.arange(n, n + 500)) if with_machine else None
        result = LossEstimates.of(GRID, JudgedSample(outcomes, scores, np.arange(n)), unjudged, 0.95).strictest(most)
        too_strict += result.safe is not None and result.safe > best
        assert result.highest is not None
        held += (result.lowest or 0.0) <= best <= result.highest
    assert too_strict / trials <= 0.07  # .05 and two standard errors
    assert held / trials >= 0.93


def test_ends_are_at_limit_crossings() -> None:
    outcomes = (np.arange(100)[:, None] < np.array([0, 2, 10, 30, 60])).astype(np.float64)
    judged = JudgedSample(outcomes, np.zeros_like(outcomes), np.arange(100))
    thresholds = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    result = LossEstimates.of(thresholds, judged, None, 0.95).strictest(0.17)
    # Exact limits at 10 of 100: one-sided .164, two-sided .176; at 30 of 100 the lower one is .212.
    assert (result.safe, result.value, result.lowest, result.highest) == (0.3, 0.3, 0.2, 0.3)


def test_few_labels_have_no_safe_threshold() -> None:
    judged = JudgedSample(np.zeros((25, 1)), np.zeros((25, 1)), np.arange(25))
    result = LossEstimates.of(np.array([0.3]), judged, None, 0.95).strictest(0.05)
    assert (result.safe, result.value, result.lowest, result.highest) == (None, 0.3, None, 0.3)


def test_lossy_thresholds_give_none() -> None:
    judged = JudgedSample(np.ones((25, 1)), np.ones((25, 1)), np.arange(25))
    result = LossEstimates.of(np.array([0.3]), judged, None, 0.95).strictest(0.05)
    assert (result.safe, result.value, result.lowest, result.highest) == (None, None, None, None)


def test_candidates_are_ascending_best_scores() -> None:
    decisions = np.random.default_rng(0).random((1000, 3)).astype(np.float32)
    candidates = candidate_thresholds(decisions)
    assert len(candidates) == 100
    assert (np.diff(candidates) > 0).all()
    assert np.isin(candidates, decisions.max(axis=1)).all()
    assert candidate_thresholds(np.full((7, 2), 0.5, np.float32)).tolist() == [0.5]


def test_mismatched_thresholds_are_refused() -> None:
    judged = JudgedSample(np.zeros((25, 1)), np.zeros((25, 1)), np.arange(25))
    with pytest.raises(ValueError, match="2 thresholds, but losses at 1"):
        LossEstimates.of(np.array([0.1, 0.2]), judged, None, 0.95)
