"""One comparator, ≥ in float32; 0.0 is a threshold and None is not."""

import numpy as np
import pytest

from taugate.policy.policy import Policy, keep
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.query import Query
from taugate.retrieval.retriever import Retriever
from tests.retrieval.text_tokens import TextTokens

SCORES = np.array([[0.9, 0.5, 0.25, 0.0, -0.1]], dtype=np.float32)


class FixedEncoder:
    def tokenize(self, texts, role):
        return [*map(TextTokens, texts)]

    def embed(self, tokens):
        return np.ones((len(tokens), 1), dtype=np.float32)


class FixedIndex:
    def search(self, queries, k):
        return TopK(np.repeat(SCORES, len(queries), 0)[:, :k], np.arange(5)[None].repeat(len(queries), 0)[:, :k])


def answer(query: Query, tau: float | None = 0.5, kind: str = "similarity"):
    return Retriever(FixedEncoder(), FixedIndex(), Policy(kind, tau, k=5)).search([query])[0]


@pytest.mark.parametrize(
    ("threshold", "kept"), [(None, 5), (0.0, 4), (-1.0, 5), (0.5, 2), (np.nextafter(np.float32(0.5), np.float32(1)), 1)]
)
def test_score_equal_to_threshold_is_kept(threshold, kept) -> None:
    assert keep(SCORES, None if threshold is None else np.float32(threshold)).sum() == kept


def test_tau_is_compared_as_float32() -> None:
    """0.1 as float64 is no float32: it is rounded once, and a score of float32(0.1) is then equal to it."""
    score = np.float32(0.1)
    assert Policy("similarity", 0.1, 5).threshold == score
    assert keep(np.array([score]), Policy("similarity", 0.1, 5).threshold).all()


def test_query_keeps_results_above_tau() -> None:
    found = answer(Query("q", k=5))
    assert found.scores.tolist() == [np.float32(0.9), 0.5]
    assert (found.considered, found.reason, found.calibrated, found.threshold) == (5, None, True, 0.5)


def test_empty_answer_has_reason_and_best_score() -> None:
    found = answer(Query("q", k=5, threshold=0.95))
    assert (len(found.scores), found.reason, found.calibrated) == (0, "all_below_threshold", False)
    assert found.best_score == np.float32(0.9)


def test_zero_threshold_applies() -> None:
    assert len(answer(Query("q", k=5, threshold=0.0)).scores) == 4


@pytest.mark.parametrize(("least", "kept"), [(0, 2), (1, 2), (2, 2), (3, 3), (9, 5)])
def test_min_results_reach_below_threshold(least: int, kept: int) -> None:
    found = answer(Query("q", k=5, min_results=least))
    assert len(found.scores) == kept
    assert found.below_threshold.tolist() == [False] * 2 + [True] * (kept - 2)
    assert found.calibrated == (kept == 2)


def test_below_threshold_uses_requested_threshold() -> None:
    found = answer(Query("q", k=5, threshold=0.95, min_results=2))
    assert found.below_threshold.tolist() == [True, True]
    assert answer(Query("q", k=5, threshold=0.0, min_results=2)).below_threshold.tolist() == [False] * 4


def test_calibration_covers_first_k_only() -> None:
    assert answer(Query("q", k=3)).calibrated
    assert not answer(Query("q", k=6)).calibrated


@pytest.mark.parametrize("kind", ["similarity", "relative"])
def test_provisional_threshold_covers_no_k(kind: str) -> None:
    retriever = Retriever(FixedEncoder(), FixedIndex(), Policy(kind, 0.5, k=5, provisional=True))
    answers = retriever.search([Query("q", k=k) for k in (1, 5, 6)])
    assert [(answer.calibrated, answer.threshold) for answer in answers] == [(False, 0.5)] * 3


def test_policy_none_keeps_all_uncalibrated() -> None:
    found = answer(Query("q", k=5), tau=None, kind="none")
    assert (len(found.scores), found.threshold, found.calibrated) == (5, None, False)
