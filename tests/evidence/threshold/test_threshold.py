"""τ(ψ) on cases whose answer is known."""

import numpy as np
import pytest

from taugate.calibration.settings import CalibrationSettings
from taugate.drift.signals import overlap_thresholds, share_above
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import HoldoutSplit
from taugate.evidence.measure import Resamples, bootstrapped
from taugate.evidence.ranking import JudgedQueries
from taugate.evidence.threshold.decide import bootstrap_threshold, gamma, unrestricted_threshold
from taugate.policy.names import Metric
from taugate.policy.policy import keep
from taugate.retrieval.index.top_k import TopK


def judged(scores: np.ndarray, grades: np.ndarray) -> JudgedQueries:
    top = TopK(scores.astype(np.float32), np.zeros(scores.shape, dtype=np.int64))
    correct = np.where(grades > 0, scores, -1).max(axis=1).astype(np.float32)
    return JudgedQueries(top, grades, np.ones(len(scores)), correct)


def test_free_cut_gives_largest_gamma() -> None:
    """The relevant document is always far above the rest: every τ(ψ) is free, so ψ = 100."""
    rng = np.random.default_rng(0)
    scores = np.column_stack([np.full(300, 0.9), rng.uniform(0.1, 0.5, 300)])
    queries = judged(scores, np.tile([1, 0], (300, 1)))
    rows = rng.integers(0, 300, size=(100, 50))
    result = bootstrap_threshold(queries, rows)
    assert result.psi == 100
    assert result.tau == gamma(queries, rows).max()


def test_costly_cut_gives_smallest_gamma() -> None:
    """The relevant document is always the last: a cut above any γ loses queries in every bootstrap that holds them."""
    rng = np.random.default_rng(0)
    last = rng.uniform(0.1, 0.5, 300)
    queries = judged(np.column_stack([np.full(300, 0.9), last]), np.tile([0, 1], (300, 1)))
    rows = rng.integers(0, 300, size=(500, 300))
    result = bootstrap_threshold(queries, rows)
    # With every query a hit the interval is [1, 1]: not one may be lost.
    assert result.tau == gamma(queries, rows).min()
    assert (queries.accuracy(keep(queries.top.scores, np.float32(result.tau)))[np.unique(rows)] == 1).all()


def test_unreachable_interval_loses_nothing() -> None:
    """Two misses in 5,000 queries: the mean is .9996 and the 2.5th percentile of 40-query bootstraps is 1."""
    rng = np.random.default_rng(0)
    grades = np.tile([1, 0], (5000, 1))
    grades[:2] = 0
    queries = judged(np.column_stack([rng.uniform(0.5, 0.9, 5000), rng.uniform(0.1, 0.5, 5000)]), grades)
    rows = rng.integers(0, 5000, size=(500, 40))
    assert bootstrapped(queries.accuracy(), rows).lower > bootstrapped(queries.accuracy(), rows).mean
    result = bootstrap_threshold(queries, rows)
    assert (result.psi, result.tau) == (0, gamma(queries, rows).min())


@pytest.mark.parametrize("metric", ["accuracy", "ndcg"])
@pytest.mark.parametrize("size", [20, 200])
def test_unrestricted_threshold_equals_search_of_all_similarities(metric: Metric, size: int) -> None:
    rng = np.random.default_rng(5)
    grades = (rng.random((200, 4)) < 0.3).astype(int)
    queries = judged(np.sort(rng.uniform(0.1, 0.9, (200, 4)).round(3))[:, ::-1], grades)
    rows = rng.integers(0, 200, size=(60, size))
    lower = bootstrapped(queries.metric(metric), rows).lower
    inside = [
        tau
        for tau in np.unique(queries.top.scores)
        if bootstrapped(queries.metric(metric, keep(queries.top.scores, tau)), rows).mean >= lower - 1e-12
    ]
    result = unrestricted_threshold(queries, rows, metric)
    assert result == inside[-1]
    assert result >= bootstrap_threshold(queries, rows, metric).tau
    assert bootstrap_threshold(queries, rows, metric).psi == 100 or size == 200


def test_unrestricted_threshold_is_none_if_interval_excludes_everything() -> None:
    grades = np.tile([1, 0], (5000, 1))
    grades[0] = 0
    queries = judged(np.column_stack([np.full(5000, 0.9), np.full(5000, 0.3)]), grades)
    rows = np.random.default_rng(0).integers(0, 5000, size=(500, 40))
    assert unrestricted_threshold(queries, rows) is None


def test_score_equal_to_tau_is_kept() -> None:
    queries = judged(np.full((40, 3), 0.5), np.tile([1, 0, 0], (40, 1)))
    rows = np.random.default_rng(0).integers(0, 40, size=(20, 10))
    result = bootstrap_threshold(queries, rows)
    assert (result.tau, result.psi) == (0.5, 100)
    assert queries.accuracy(keep(queries.top.scores, np.float32(result.tau))).all()


def test_interval_equals_bootstrap_percentiles() -> None:
    values = np.arange(10.0)
    rows = np.arange(10)[:, None]  # bootstrap j is query j alone
    result = bootstrapped(values, rows)
    assert (result.mean, result.lower, result.upper) == (4.5, *np.percentile(values, [2.5, 97.5]))


def test_overlap_counts_strictly_above() -> None:
    sample = np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32)
    thetas = np.array([0.0, np.float64(np.float32(0.2)), 0.4, 0.5])
    assert share_above(sample, thetas).tolist() == [1.0, 0.5, 0.25, 0.0]
    top = np.array([[0.9, 0.1], [0.8, 0.2]], dtype=np.float32)
    rows = np.array([[0, 0], [1, 1]])
    np.testing.assert_allclose(overlap_thresholds(top, rows, 0), [0.1, 0.2], rtol=1e-7)


def test_split_covers_queries_once() -> None:
    split = HoldoutSplit.by_query(np.random.default_rng(3), 101, 0.3)
    assert len(split.heldout) == round(0.3 * 101)
    assert sorted([*split.calibration, *split.heldout]) == list(range(101))
    assert len(HoldoutSplit.by_query(np.random.default_rng(3), 5, 0.0).heldout) == 0


def test_document_interval_has_document_width() -> None:
    """100 documents with five queries each, all hits or all misses: its width is that of 100 queries, not of 500."""
    settings = CalibrationSettings(bootstraps=200, sample_size=500, seed=3)
    labels, hits = np.repeat(np.arange(100), 5), np.repeat(np.arange(100) < 70, 5).astype(float)
    shared, alone = (
        Resamples.draw(np.random.default_rng(3), SamplingUnits.from_clusters(item), 50, settings)
        for item in (labels, np.arange(500))
    )
    assert np.array_equal(shared.rows, alone.rows), "the draws of the contract are the same"
    result, plain = shared.estimate(hits), alone.estimate(hits)
    assert plain.by_document is None
    assert (result.mean, result.lower, result.upper) == (plain.mean, plain.lower, plain.upper)
    assert result.by_document is not None
    assert result.by_document.mean == pytest.approx(0.7, abs=0.01)
    width = result.by_document.upper - result.by_document.lower
    assert width == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / 100), abs=0.021)  # steps of 0.01
    assert width > 2 * (result.upper - result.lower)
    assert shared.estimate(hits) == result, "the same seed gives the same interval"
