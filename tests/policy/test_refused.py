"""A refused query gets nothing with a reason; an answered query gets at least its best result."""

import numpy as np
import pytest

from taugate.policy.abstention import AnswerRule, AnswerScore, Signals
from taugate.policy.policy import Policy, StratumThresholds
from taugate.retrieval.documents.filters import OneOf
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.query import Query
from taugate.retrieval.retriever import Retriever
from tests.retrieval.text_tokens import TextTokens

SCORES = {"near": [0.9, 0.5, 0.25, 0.1], "far": [0.4, 0.39, 0.2, 0.1], "edge": [0.5, 0.3, 0.2, 0.1]}
TAU = 0.5  # of the best similarity, below which a query is refused


class Texts:
    """Each text is its own vector."""

    def tokenize(self, texts, role):
        return [*map(TextTokens, texts)]

    def embed(self, tokens):
        return np.array([[list(SCORES).index(text)] for text in tokens], dtype=np.float32)

    def single_threaded(self):
        return self


class Lists:
    def search(self, queries, k):
        found = np.array([[*SCORES.values()][int(query)][:k] for query in queries[:, 0]], dtype=np.float32)
        return TopK(found, np.tile(np.arange(found.shape[1]), (len(found), 1)))

    def search_within(self, queries, k, within):
        left = len(within.positions)
        found = self.search(queries, k)
        return TopK(found.scores[:, -left:] if left else found.scores[:, :0], found.positions[:, :left])


class Folders:
    """Filters by how many documents they leave."""

    def where(self, query_filter):
        return np.arange(4) < query_filter[0]


class Everything:
    def where(self, query_filter):
        return np.ones(4, dtype=bool)


RULE = AnswerRule(AnswerScore("best_similarity", Signals(k=4)), TAU)


def retriever(cut: float | None, kind: str = "similarity") -> Retriever:
    return Retriever(Texts(), Lists(), Policy(kind, cut, k=4), metadata=Folders(), abstention=RULE)


def answer(text: str, cut: float | None = 0.3, **asked):
    return retriever(cut, "none" if cut is None else "similarity").search([Query(text, **{"k": 4, **asked})])[0]


def test_refused_query_returns_nothing() -> None:
    found = answer("far")
    assert (found.positions.tolist(), found.reason, found.considered) == ([], "unanswerable", 4)
    assert (found.best_score, found.threshold, found.calibrated) == (np.float32(0.4), np.float32(0.3), True)


def test_refused_query_without_cut_returns_nothing() -> None:
    assert (len(answer("far", None).positions), answer("far", None).reason) == (0, "unanswerable")
    assert len(answer("near", None).positions) == 4


@pytest.mark.parametrize(("cut", "kept"), [(0.2, 3), (0.5, 2), (0.6, 1), (0.95, 1)])
def test_answered_query_keeps_best_result(cut: float, kept: int) -> None:
    found = answer("near", cut)
    assert (found.ranks.tolist(), found.reason) == ([*range(1, kept + 1)], None)
    assert (found.below_threshold.any(), found.calibrated) == (False, True)


def test_score_equal_to_tau_is_answered() -> None:
    assert answer("edge").ranks.tolist() == [1, 2]


def test_requested_threshold_overrides_refusal() -> None:
    found = answer("far", threshold=0.39)
    assert (found.ranks.tolist(), found.reason, found.calibrated) == ([1, 2], None, False)
    nothing = answer("near", threshold=0.95)
    assert (len(nothing.positions), nothing.reason) == (0, "all_below_threshold")


@pytest.mark.parametrize(("least", "kept"), [(1, [1]), (3, [1, 2, 3]), (9, [1, 2, 3, 4])])
def test_min_results_override_refusal(least: int, kept: list[int]) -> None:
    found = answer("far", min_results=least)
    assert (found.ranks.tolist(), found.reason) == (kept, None)
    assert (found.below_threshold.all(), found.calibrated) == (True, False)


def test_refusal_is_independent_of_k() -> None:
    for k in (1, 2, 4):
        assert answer("far", k=k).reason == "unanswerable"
        assert answer("near", k=k).ranks[0] == 1


def test_filtered_results_decide_refusal() -> None:
    """The best similarity of what is left of `near` is 0.25; of nothing there is none."""
    found = answer("near", filter=(2,))
    assert (len(found.positions), found.reason, found.calibrated, found.uncut) == (0, "unanswerable", False, None)
    nothing = answer("near", filter=(0,))
    assert (nothing.considered, nothing.reason) == (0, "no_documents_match_filter")


def test_drift_counts_what_users_get() -> None:
    found = retriever(0.95).search([Query(text, k=4, threshold=-1.0, min_results=3) for text in SCORES])
    assert [item.uncut_kept for item in found] == [1, 0, 1]


def test_batch_refuses_queries_individually() -> None:
    asked = [Query("far", 4), Query("near", 4, threshold=0.95), Query("near", 2), Query("far", 1), Query("edge", 4)]
    reasons = [found.reason for found in retriever(0.3).search(asked)]
    assert reasons == ["unanswerable", "all_below_threshold", None, "unanswerable", None]


def test_single_threaded_retriever_refuses() -> None:
    assert retriever(0.3).single_threaded().search([Query("far", 4)])[0].reason == "unanswerable"


def test_stratum_refusal_is_not_certified() -> None:
    strata = StratumThresholds("lang", {"sv": 0.05})
    query_filter = (OneOf("lang", ("sv",)),)

    def asked(rule: AnswerRule | None):
        policy = Policy("similarity", 0.3, k=4, strata=strata)
        found = Retriever(Texts(), Lists(), policy, metadata=Everything(), abstention=rule)
        return found.search([Query("near", 4, filter=query_filter)])[0]

    assert (asked(None).calibrated, asked(None).threshold, len(asked(None).ranks)) == (True, np.float32(0.05), 4)
    assert (asked(RULE).calibrated, asked(RULE).threshold, len(asked(RULE).ranks)) == (False, np.float32(0.05), 4)
