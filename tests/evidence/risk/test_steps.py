"""The staircase of losses equals the metric without the cut less the metric with it, at every threshold there is."""

import math

import numpy as np
import pytest

from taugate.evidence.ranking import JudgedQueries, ideal_dcg
from taugate.evidence.risk.steps import LossSteps
from taugate.retrieval.index.top_k import TopK


def random_queries(seed: int, n: int = 50, k: int = 6) -> tuple[JudgedQueries, np.ndarray]:
    """Graded queries with several relevant documents, some of them never retrieved, and decision scores with ties.

    The decision scores have nothing to do with the ranks: a relevant document of lower rank may have a higher one.
    """
    rng = np.random.default_rng(seed)
    grades = np.maximum(rng.integers(-4, 4, size=(n, k)), 0)
    grades[:5] = 0  # no relevant document in the list
    missed = [rng.integers(1, 4, size=rng.integers(0, 3)).tolist() or [1] for _ in range(n)]
    pairs = zip(grades.tolist(), missed, strict=True)
    ideal = np.array([ideal_dcg([*(grade for grade in row if grade), *extra], k) for row, extra in pairs])
    scores = -np.sort(-rng.uniform(-0.2, 1, size=(n, k)), axis=1).astype(np.float32)
    decisions = (rng.integers(-3, 12, size=(n, k)) / 10).astype(np.float32)
    top = TopK(scores, np.zeros((n, k), dtype=np.int64))
    return JudgedQueries(top, grades, ideal, scores[:, 0]), decisions


def thresholds(decisions: np.ndarray) -> list[np.float32]:
    """Every score, its neighbours among the float32 numbers, halfway to the next, and beyond both ends."""
    seen = np.unique(decisions)
    halfway = (seen[1:] + seen[:-1]) / 2
    beyond = np.array([seen[0] - 1, seen[-1] + 1], dtype=np.float32)
    up, down = np.nextafter(seen, np.float32(9)), np.nextafter(seen, np.float32(-9))
    return list(np.unique(np.concatenate([seen, up, down, halfway, beyond]).astype(np.float32)))


def accuracy_of(grades: list[int], kept: list[bool], ideal: float) -> float:
    return float(any(grade >= 1 and keeps for grade, keeps in zip(grades, kept, strict=True)))


def ndcg_of(grades: list[int], kept: list[bool], ideal: float) -> float:
    pairs = zip(grades, kept, strict=True)
    return sum(grade / math.log2(rank + 2) for rank, (grade, keeps) in enumerate(pairs) if keeps) / ideal


def empty_of(grades: list[int], kept: list[bool], ideal: float) -> float:
    return float(any(kept))


def brute_force(metric, queries: JudgedQueries, decisions: np.ndarray, threshold: np.float32) -> float:
    total = 0.0
    for grades, row, ideal in zip(queries.grades.tolist(), decisions, queries.ideal.tolist(), strict=True):
        kept = [bool(score >= threshold) for score in row]
        total += metric(grades, [True] * len(kept), ideal) - metric(grades, kept, ideal)
    return total


CASES = {
    "accuracy": (LossSteps.of_accuracy, accuracy_of),
    "ndcg": (LossSteps.of_ndcg, ndcg_of),
    "empty": (lambda queries, decisions: LossSteps.of_empty(decisions), empty_of),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CASES)
def test_steps_equal_brute_force_loss(name: str, seed: int) -> None:
    steps_of, metric = CASES[name]
    queries, decisions = random_queries(seed)
    steps = steps_of(queries, decisions)
    tried = thresholds(decisions)
    expected = [brute_force(metric, queries, decisions, threshold) for threshold in tried]
    np.testing.assert_allclose(steps.at(np.array(tried, dtype=np.float32)), expected, atol=1e-9)
    assert steps.queries == len(queries)
    assert steps.losses[0] == 0
    assert (np.diff(steps.losses) > 0).all(), "a candidate at which nothing is lost is none"
    assert (np.diff(steps.candidates) > 0).all()
    assert set(steps.candidates.tolist()) <= set(decisions.ravel().tolist())
    assert steps.candidates.dtype == np.float32


@pytest.mark.parametrize("name", CASES)
def test_fractions_have_terms_by_query(name: str) -> None:
    steps_of, _ = CASES[name]
    steps = steps_of(*random_queries(9))
    complete = np.equal(steps.losses, np.round(steps.losses)).all()
    assert (steps.documents is None) == (name != "ndcg") == bool(complete)
    assert steps.unit == "query"


def test_lower_ranked_relevant_document_saves_query() -> None:
    grades = np.array([[1, 0, 2]])
    top = TopK(np.array([[0.9, 0.8, 0.7]], dtype=np.float32), np.zeros((1, 3), dtype=np.int64))
    queries = JudgedQueries(top, grades, np.array([ideal_dcg([1, 2], 3)]), np.array([0.9], dtype=np.float32))
    decisions = np.array([[0.2, 0.9, 0.6]], dtype=np.float32)
    assert LossSteps.of_accuracy(queries, decisions).candidates.tolist() == [np.float32(0.6)]
    steps = LossSteps.of_ndcg(queries, decisions)
    assert steps.candidates.tolist() == [np.float32(0.2), np.float32(0.6)]
    ideal = 2 + 1 / math.log2(3)
    np.testing.assert_allclose(steps.losses, [0, 1 / ideal, (1 + 2 / 2) / ideal])


def test_misses_have_no_steps() -> None:
    queries, decisions = random_queries(0)
    missed = queries.take(np.arange(5))
    for steps_of in (LossSteps.of_accuracy, LossSteps.of_ndcg):
        steps = steps_of(missed, decisions[:5])
        assert len(steps.candidates) == 0
        assert steps.at(np.array([-1, 0.5, 2], dtype=np.float32)).tolist() == [0, 0, 0]
