"""Queries judged whole and queries from traffic together: what is estimated, and how sure it is."""

import numpy as np
import pytest

from taugate.evidence.few_labels.population import QueryPopulation, ScoredResults, loss_scores, losses
from taugate.evidence.few_labels.shares import weighted_rate_limits
from taugate.policy.arrays import Float64

TAU = np.array([0.35])


def asked(rng: np.random.Generator, whole: int, traffic: int, unjudged: int = 200) -> QueryPopulation:
    """Queries with one result each; those from traffic find their answer, and results below .2 are seldom shown."""
    size = whole + 40 * traffic + unjudged
    scores = rng.random(size)
    answerable = rng.random(size) < 0.9
    actual = answerable & (rng.random(size) < 0.4 + 0.6 * scores)
    shown = np.where(scores < 0.2, 0.3, 1.0)
    part = np.repeat([0, 1, 2], [whole, 40 * traffic, unjudged])
    seen = np.flatnonzero((part == 1) & actual & (rng.random(size) < 0.2 * shown))[:traffic]
    rows = np.concatenate([np.flatnonzero(part == 0), seen])
    weights = np.ones(len(rows))
    weights[whole:] = (1 / shown[seen]) / (1 / shown[seen]).mean()
    remaining = part == 2

    def results(of: np.ndarray) -> ScoredResults:
        return ScoredResults(scores[of, None], (0.4 + 0.6 * scores)[of, None])

    return QueryPopulation(
        judged=results(rows),
        documents=np.arange(len(rows)),
        weights=weights,
        answerable=answerable[rows],
        hits=actual[rows],
        complete=np.arange(len(rows)) < whole,
        unjudged=results(remaining),
    )


def scoring(relevance: np.ndarray, decisions: np.ndarray) -> Float64:
    return loss_scores(relevance, decisions, TAU)


def lost(queries: QueryPopulation) -> Float64:
    return losses(queries.hits[:, None], queries.judged.decisions, TAU)


def test_traffic_is_weighted_by_accuracy() -> None:
    queries = asked(np.random.default_rng(0), 100, 200)
    y, w, result, whole = lost(queries)[:, 0], queries.weights, queries.hits, queries.complete

    def accuracy_of(weights: Float64) -> Float64:
        return (weights * result)[whole].sum() / (weights * queries.answerable)[whole].sum()

    accuracy = accuracy_of(w)
    answerable = (w * queries.answerable)[whole].sum() + w[~whole].sum() / accuracy
    judged, unjudged = queries.sample(lost(queries), scoring, complete=False)
    assert unjudged is None
    assert judged.shares[0] == pytest.approx((w @ y) / answerable, rel=1e-12)
    # The bases are the derivative of the share by the weight of each query.
    assert judged.bases is not None
    total = judged.relative_weights @ judged.bases
    misses = np.flatnonzero(whole & queries.answerable & ~result)
    for row in (int(np.flatnonzero(whole & result)[0]), int(misses[0]), 150):
        step = np.zeros(len(w))
        step[row] = 1e-6
        moved = [
            ((w + item) @ y)
            / (((w + item) * queries.answerable)[whole].sum() + (w + item)[~whole].sum() / accuracy_of(w + item))
            for item in (step, -step)
        ]
        slope = (moved[0] - moved[1]) / 2e-6
        expected = (y[row] - judged.shares[0] * judged.bases[row]) / (total * w.mean())
        assert slope == pytest.approx(expected, rel=1e-4)


def test_few_complete_judgements_use_hits() -> None:
    queries = asked(np.random.default_rng(1), 30, 100)
    judged, _ = queries.sample(lost(queries), scoring, complete=False)
    np.testing.assert_array_equal(judged.base, queries.hits.astype(float))


@pytest.mark.parametrize("traffic", [100, 400])
def test_loss_interval_holds_with_traffic(traffic: int) -> None:
    everything = np.random.default_rng(7).random(2_000_000)
    truth = float(np.mean((everything < TAU[0]) * (0.4 + 0.6 * everything)))  # of the answerable
    held = safe = 0
    for trial in range(200):
        queries = asked(np.random.default_rng([3, trial]), 100, traffic)
        both = queries.compare(lost(queries), scoring, 0.95, complete=False).both
        held += bool(both.lower[0] <= truth <= both.upper[0])
        safe += bool(truth <= queries.compare(lost(queries), scoring, 0.9, complete=False).both.upper[0])
    assert min(held, safe) / 200 >= 0.93


def test_equal_weights_give_poisson_limits() -> None:
    outcomes = np.zeros((50, 2))
    outcomes[:4, 0] = 1
    lower, upper = weighted_rate_limits(outcomes, np.full(50, 1 / 50), 0.95)
    np.testing.assert_allclose(50 * lower, [1.0899, 0.0], atol=1e-4)
    np.testing.assert_allclose(50 * upper, [10.2416, 3.6889], atol=1e-4)
