"""A query that is refused gets nothing and is told so; one that is answered gets its best result at least."""

import numpy as np
import pytest

from taugate.retrieval.documents.filters import OneOf
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.abstention import AnswerRule, AnswerScore, Signals
from taugate.retrieval.policy.policy import Policy, StratumThresholds
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

    def where(self, wanted):
        return np.arange(4) < wanted[0]


class Everything:
    def where(self, wanted):
        return np.ones(4, dtype=bool)


RULE = AnswerRule(AnswerScore("best_similarity", Signals(k=4)), TAU)


def retriever(cut: float | None, kind: str = "similarity") -> Retriever:
    return Retriever(Texts(), Lists(), Policy(kind, cut, k=4), metadata=Folders(), abstention=RULE)


def answer(text: str, cut: float | None = 0.3, **asked):
    return retriever(cut, "none" if cut is None else "similarity").search([Query(text, **{"k": 4, **asked})])[0]


def test_a_refused_query_gets_nothing_whatever_the_cut_would_keep() -> None:
    found = answer("far")
    assert (found.positions.tolist(), found.reason, found.considered) == ([], "unanswerable", 4)
    assert (found.best_score, found.threshold, found.calibrated) == (np.float32(0.4), np.float32(0.3), True)


def test_a_refused_query_gets_nothing_without_a_cut_either() -> None:
    assert (len(answer("far", None).positions), answer("far", None).reason) == (0, "unanswerable")
    assert len(answer("near", None).positions) == 4


@pytest.mark.parametrize(("cut", "kept"), [(0.2, 3), (0.5, 2), (0.6, 1), (0.95, 1)])
def test_an_answered_query_keeps_its_best_result(cut: float, kept: int) -> None:
    found = answer("near", cut)
    assert (found.ranks.tolist(), found.reason) == ([*range(1, kept + 1)], None)
    assert (found.below_threshold.any(), found.calibrated) == (False, True)


def test_a_score_equal_to_tau_is_answered() -> None:
    assert answer("edge").ranks.tolist() == [1, 2]


def test_the_requests_own_threshold_refuses_nobody() -> None:
    found = answer("far", threshold=0.39)
    assert (found.ranks.tolist(), found.reason, found.calibrated) == ([1, 2], None, False)
    nothing = answer("near", threshold=0.95)
    assert (len(nothing.positions), nothing.reason) == (0, "all_below_threshold")


@pytest.mark.parametrize(("least", "kept"), [(1, [1]), (3, [1, 2, 3]), (9, [1, 2, 3, 4])])
def test_min_results_are_returned_of_a_refused_query(least: int, kept: list[int]) -> None:
    found = answer("far", min_results=least)
    assert (found.ranks.tolist(), found.reason) == (kept, None)
    assert (found.below_threshold.all(), found.calibrated) == (True, False)


def test_fewer_or_more_results_are_refused_alike() -> None:
    for k in (1, 2, 4):
        assert answer("far", k=k).reason == "unanswerable"
        assert answer("near", k=k).ranks[0] == 1


def test_within_a_filter_what_it_leaves_is_scored() -> None:
    """The best similarity of what is left of `near` is 0.25; of nothing there is none."""
    found = answer("near", filter=(2,))
    assert (len(found.positions), found.reason, found.calibrated, found.uncut) == (0, "unanswerable", False, None)
    nothing = answer("near", filter=(0,))
    assert (nothing.considered, nothing.reason) == (0, "no_documents_match_filter")


def test_drift_counts_what_users_get() -> None:
    found = retriever(0.95).search([Query(text, k=4, threshold=-1.0, min_results=3) for text in SCORES])
    assert [each.uncut.kept for each in found] == [1, 0, 1]


def test_queries_are_refused_one_by_one_in_a_batch() -> None:
    asked = [Query("far", 4), Query("near", 4, threshold=0.95), Query("near", 2), Query("far", 1), Query("edge", 4)]
    reasons = [found.reason for found in retriever(0.3).search(asked)]
    assert reasons == ["unanswerable", "all_below_threshold", None, "unanswerable", None]


def test_on_one_thread_the_same_are_refused() -> None:
    assert retriever(0.3).single_threaded().search([Query("far", 4)])[0].reason == "unanswerable"


def test_within_a_certified_stratum_refusals_are_not_certified() -> None:
    strata = StratumThresholds("lang", {"sv": 0.05})
    wanted = (OneOf("lang", ("sv",)),)

    def asked(rule: AnswerRule | None):
        policy = Policy("similarity", 0.3, k=4, strata=strata)
        found = Retriever(Texts(), Lists(), policy, metadata=Everything(), abstention=rule)
        return found.search([Query("near", 4, filter=wanted)])[0]

    assert (asked(None).calibrated, asked(None).threshold, len(asked(None).ranks)) == (True, np.float32(0.05), 4)
    assert (asked(RULE).calibrated, asked(RULE).threshold, len(asked(RULE).ranks)) == (False, np.float32(0.05), 4)
