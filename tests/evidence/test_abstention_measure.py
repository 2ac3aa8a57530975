"""AUROC, risk and coverage against their definitions, counted pair by pair and query by query."""

import numpy as np
import pytest

from taugate.evidence.measure import abstention, abstention_nauc, risk_coverage


def decisions(rng: np.random.Generator, n: int, shift: float) -> np.ndarray:
    """In tenths, so that many are equal."""
    return (np.round(rng.normal(shift, 2, size=(n, 3))) / 10).astype(np.float32)


def pairs(answerable: np.ndarray, unanswerable: np.ndarray) -> float:
    """Share of pairs in which the answerable query's best score is the higher one; ties count half."""
    total = 0.0
    for left in answerable:
        for right in unanswerable:
            total += 1.0 if max(left) > max(right) else 0.5 if max(left) == max(right) else 0.0
    return total / len(answerable) / len(unanswerable)


def risk_by_coverage(best: list[float], right: list[float]) -> tuple[list[float], list[float]]:
    """For the query that is n-th surest: the share of wrong ones among all that are at least as sure."""
    coverage, risk = [], []
    for number, score in enumerate(sorted(best, reverse=True), start=1):
        answered = [good for other, good in zip(best, right, strict=True) if other >= score]
        coverage.append(number / len(best))
        risk.append(1 - sum(answered) / len(answered))
    return coverage, risk


@pytest.mark.parametrize("seed", range(4))
def test_figures_equal_plain_loop_definitions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    answerable, unanswerable = decisions(rng, 60, 4), decisions(rng, 25, 2)
    hits = (rng.uniform(size=60) < 0.7).astype(np.float64)
    result = abstention(answerable, hits, unanswerable, np.float32(0.4))
    assert result.auroc == pytest.approx(pairs(answerable, unanswerable))
    assert result.answerable_empty == sum(max(row) < np.float32(0.4) for row in answerable) / 60
    assert result.unanswerable_empty == sum(max(row) < np.float32(0.4) for row in unanswerable) / 25
    best = [float(max(row)) for row in (*answerable, *unanswerable)]
    _, risk = risk_by_coverage(best, [*hits.tolist(), *[0.0] * 25])
    assert result.aurc == pytest.approx(np.mean(risk))


@pytest.mark.parametrize("seed", range(4))
def test_risk_curve_equals_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    best = decisions(rng, 80, 0).max(axis=1)
    right = (rng.uniform(size=80) < 0.6).astype(np.float64)
    coverage, risk = risk_coverage(best, right)
    expected = risk_by_coverage(best.tolist(), right.tolist())
    np.testing.assert_allclose(coverage, expected[0])
    np.testing.assert_allclose(risk, expected[1], atol=1e-12)
    order = rng.permutation(80)
    shuffled = risk_coverage(best[order], right[order])
    np.testing.assert_allclose(shuffled[1], risk, atol=1e-12)  # queries of equal score have no order among them


def test_perfect_and_useless_scores_give_extremes() -> None:
    high, low = np.full((10, 2), 0.9, dtype=np.float32), np.full((30, 2), 0.1, dtype=np.float32)
    perfect = abstention(high, np.ones(10), low, np.float32(0.5))
    assert (perfect.auroc, perfect.answerable_empty, perfect.unanswerable_empty) == (1.0, 0.0, 1.0)
    useless = abstention(high, np.ones(10), np.full((30, 2), 0.9, dtype=np.float32), None)
    assert (useless.auroc, useless.answerable_empty, useless.unanswerable_empty) == (0.5, 0.0, 0.0)
    assert useless.aurc == pytest.approx(0.75)
    assert abstention(low, np.ones(30), high, None).auroc == 0.0


def test_no_unanswerable_queries_give_none() -> None:
    result = abstention(
        np.full((4, 2), 0.3, dtype=np.float32), np.ones(4), np.empty((0, 2), np.float32), np.float32(0.5)
    )
    assert result.answerable_empty == 1.0
    assert (result.unanswerable_empty, result.auroc, result.aurc) == (None, None, None)


def test_best_score_counts_at_any_rank() -> None:
    """A probability need not fall with the rank."""
    answerable = np.array([[0.1, 0.8], [0.2, 0.3]], dtype=np.float32)
    unanswerable = np.array([[0.5, 0.1]], dtype=np.float32)
    result = abstention(answerable, np.ones(2), unanswerable, np.float32(0.4))
    assert (result.auroc, result.answerable_empty, result.unanswerable_empty) == (0.5, 0.5, 0.0)


def test_nauc_is_that_of_mteb() -> None:
    nauc = pytest.importorskip("mteb._evaluators.retrieval_metrics").nauc
    rng = np.random.default_rng(0)
    for decimals in (8, 1):  # without and with ties
        best, quality = rng.random(57).round(decimals).astype(np.float32), rng.random(57).round(decimals)
        assert abstention_nauc(best, quality) == pytest.approx(nauc(best, quality))


@pytest.mark.parametrize(("order", "nauc"), [([1, 2, 3, 4], 1.0), ([1, 1, 1, 1], 0.0)])
def test_nauc_of_known_orders(order: list[int], nauc: float) -> None:
    assert abstention_nauc(np.array(order, np.float32), np.array([0.1, 0.4, 0.5, 1.0])) == pytest.approx(nauc)


def test_nauc_of_equal_queries_is_undefined() -> None:
    assert abstention_nauc(np.arange(4, dtype=np.float32), np.full(4, 0.7)) is None
