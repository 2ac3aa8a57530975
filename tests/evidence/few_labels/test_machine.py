"""The scores that a model of relevance gives, against every way in which results can be relevant."""

from itertools import product

import numpy as np
import pytest

from taugate.evidence.few_labels.population import hit_scores, loss_scores, losses

RELEVANCE = np.array([[0.9, 0.4, 0.05], [0.0, 0.0, 0.0], [1.0, 0.2, 0.3]])
DECISIONS = np.array([[0.8, 0.5, 0.2], [0.9, 0.8, 0.7], [0.3, 0.2, 0.1]])
THRESHOLDS = np.array([0.0, 0.2, 0.25, 0.6, 0.95])


def test_scores_sum_all_cases() -> None:
    hits, lost = np.zeros(3), np.zeros((3, 5))
    for query, case in product(range(3), product([False, True], repeat=3)):
        chance = float(np.prod(np.where(case, RELEVANCE[query], 1 - RELEVANCE[query])))
        relevant = np.array(case)
        hits[query] += chance * relevant.any()
        for at, threshold in enumerate(THRESHOLDS):
            kept = relevant & (DECISIONS[query] >= threshold)
            lost[query, at] += chance * (relevant.any() and not kept.any())
    np.testing.assert_allclose(hit_scores(RELEVANCE)[:, 0], hits)
    np.testing.assert_allclose(loss_scores(RELEVANCE, DECISIONS, THRESHOLDS), lost, atol=1e-15)


def test_losses_of_known_relevance() -> None:
    relevant = np.array([[False, True, True], [False, False, False]])
    result = losses(relevant, DECISIONS[:2], THRESHOLDS)
    assert result.tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]


def test_score_equal_to_threshold_is_kept() -> None:
    threshold = np.array([0.1], np.float32)
    assert losses(np.array([[True]]), np.array([[0.1]], np.float32), threshold).tolist() == [[0]]
    assert losses(np.array([[True]]), np.nextafter(threshold, 0, dtype=np.float32)[None], threshold).tolist() == [[1]]


def test_float32_product_keeps_precision() -> None:
    tiny = np.full((1, 10), 1e-5, np.float32)
    assert hit_scores(tiny)[0, 0] == pytest.approx(1e-4, rel=1e-3)
