"""The exact interval of labels alone: its definition, its documents, and what it refuses."""

import numpy as np
import pytest
from scipy import stats

from taugate.evidence.few_labels.shares import (
    JudgedSample,
    UnjudgedSample,
    clopper_pearson,
    design_effect,
    labels_alone,
)


def judged(outcomes: list[float], documents: list[int] | None = None) -> JudgedSample:
    table = np.array(outcomes)[:, None]
    return JudgedSample(table, np.zeros_like(table), np.array(documents or range(len(outcomes))))


@pytest.mark.parametrize("n", [1, 25, 50, 100])
def test_interval_equals_scipy_exact(n: int) -> None:
    for hits in {0, 1, n // 3, n - 1, n}:
        expected = stats.binomtest(hits, n).proportion_ci(confidence_level=0.95, method="exact")
        result = labels_alone(judged([1.0] * hits + [0.0] * (n - hits)), 0.95)
        np.testing.assert_allclose([result.lower[0], result.upper[0]], [expected.low, expected.high], atol=1e-12)
        assert result.value[0] == hits / n
        assert result.effective_labels[0] == pytest.approx(n, rel=1e-12)


def test_shared_documents_count_once() -> None:
    every_document_three_times = judged([1.0, 1, 1, 0, 0, 0] * 5, [number // 3 for number in range(30)])
    once = judged([1.0, 0] * 5)
    few, same = labels_alone(every_document_three_times, 0.95), labels_alone(once, 0.95)
    np.testing.assert_allclose(
        [few.lower, few.upper, few.effective_labels], [same.lower, same.upper, same.effective_labels]
    )


def test_design_effect_equals_kish() -> None:
    assert design_effect(np.array([4, 9, 9, 2, 2, 2])) == pytest.approx((1 + 4 + 9) / 6)


def sampled(outcomes: list[float], weights: list[float], answerable: list[bool] | None = None) -> JudgedSample:
    table = np.array(outcomes)[:, None]
    some = None if answerable is None else np.array(answerable)
    return JudgedSample(table, np.zeros_like(table), np.arange(len(outcomes)), np.array(weights), some)


def test_equal_weights_change_nothing() -> None:
    outcomes = [1.0] * 13 + [0.0] * 37
    plain, same = labels_alone(judged(outcomes), 0.95), labels_alone(sampled(outcomes, [7.0] * 50, [True] * 50), 0.95)
    for name in ("value", "lower", "upper", "effective_labels"):
        np.testing.assert_allclose(getattr(same, name), getattr(plain, name), rtol=1e-12)


def test_weighted_share_has_kish_size() -> None:
    result = labels_alone(sampled([1.0, 0, 1, 0, 0], [1.0, 2, 3, 4, 5], [True, True, True, True, False]), 0.95)
    assert result.value[0] == pytest.approx((1 + 3) / (1 + 2 + 3 + 4), rel=1e-12)
    kish = 10**2 / (1 + 4 + 9 + 16)
    linearised = 0.4 * 0.6 / ((0.6**2 * (1 + 9) + 0.4**2 * (4 + 16)) / 10**2)
    assert result.effective_labels[0] == pytest.approx(min(kish, linearised), rel=1e-12)


def test_unanswerable_queries_are_ignored() -> None:
    some = labels_alone(sampled([1.0, 0, 0, 0], [2.0, 1, 1, 9], [True, True, True, False]), 0.95)
    none = labels_alone(sampled([1.0, 0, 0], [2.0, 1, 1]), 0.95)
    np.testing.assert_allclose([some.value, some.lower, some.upper], [none.value, none.lower, none.upper])


def test_heavy_query_widens_interval() -> None:
    heavy = labels_alone(sampled([1.0] + [0.0] * 40, [20.0] + [1.0] * 40), 0.95)
    light = labels_alone(sampled([1.0] + [0.0] * 40, [0.05] + [1.0] * 40), 0.95)
    assert heavy.effective_labels[0] < 5  # by its variance; by the weights alone it would be 8
    assert 35 < light.effective_labels[0] <= 41


def test_more_labels_narrow_interval() -> None:
    share = np.full(2, 0.3)
    lower, upper = clopper_pearson(share, np.array([50.5, 51.0]), 0.95)
    assert lower[1] > lower[0]
    assert upper[1] < upper[0]
    assert clopper_pearson(share, np.array([50.5, 51.0]), 0.9)[1][0] < upper[0]


@pytest.mark.parametrize(
    ("outcomes", "scores", "documents", "message"),
    [
        (np.empty((0, 1)), np.empty((0, 1)), np.empty(0), r"must have the shape \(queries, outcomes\)"),
        (np.array([[1.5]]), np.zeros((1, 1)), np.zeros(1), "not in 0…1"),
        (np.array([[np.nan]]), np.zeros((1, 1)), np.zeros(1), "not in 0…1"),
        (np.ones((2, 1)), np.zeros((2, 3)), np.zeros(2), r"the shape \(2, 3\), but \(2, 1\) is expected"),
        (np.ones((2, 1)), np.zeros((2, 1)), np.zeros(3), "documents of 3 queries, and scores of 2"),
        (np.ones((1, 1)), np.array([[np.inf]]), np.zeros(1), "not a finite number"),
    ],
)
def test_invalid_sample_is_refused(
    outcomes: np.ndarray, scores: np.ndarray, documents: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        JudgedSample(outcomes, scores, documents.astype(np.int64))


@pytest.mark.parametrize(
    ("weights", "answerable", "message"),
    [
        ([1.0], None, "weights of 1 queries, and 2 queries"),
        ([1.0, 0.0], None, "not a finite number above 0"),
        ([1.0, float("inf")], None, "not a finite number above 0"),
        ([1.0, 1.0], [True], "1 queries may be answerable, of 2"),
        ([1.0, 1.0], [False, False], "no judged query is answerable"),
        ([1.0, 1.0], [False, True], "without an answer has an outcome"),
    ],
)
def test_invalid_weights_are_refused(weights: list[float], answerable: list[bool] | None, message: str) -> None:
    outcomes = [0.0, 0.0] if answerable == [False, False] else [1.0, 0.0]
    with pytest.raises(ValueError, match=message):
        sampled(outcomes, weights, answerable)


def test_mismatched_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="expected"):
        UnjudgedSample(np.zeros((3, 1)), np.zeros(2, np.int64))
