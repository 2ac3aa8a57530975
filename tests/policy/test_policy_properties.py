"""The kept results of any scores at any threshold follow the rule literally."""

import math
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taugate.policy.policy import POLICIES, Policy, keep
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.query import Answer, Query
from taugate.retrieval.retriever import Retriever
from tests.retrieval.text_tokens import TextTokens

# Few values, so that ties and scores that equal the threshold are common; their neighbours in float32 and in float64.
_ROUND = [-1.0, -0.25, -0.0, 0.0, 0.1, 0.25, 1 / 3, 0.5, 1.0]
_NEAR = [float(np.nextafter(np.float32(value), np.float32(way))) for value in _ROUND for way in (-2, 2)]
_FINER = [float(np.nextafter(value, way)) for value in _ROUND for way in (-2, 2)]
NUMBERS = st.one_of(st.sampled_from(_ROUND + _NEAR + _FINER), st.floats(-1, 1))
LISTS = st.lists(NUMBERS, min_size=1, max_size=8).map(
    lambda values: np.array(sorted(values, reverse=True), dtype=np.float32)
)
KINDS = st.sampled_from(["similarity", "relative"])


def rounded(number: float) -> float:
    """The nearest float32, by way of its four bytes; infinite beyond the largest."""
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def literal(kind: str, scores: np.ndarray, tau: float) -> list[bool]:
    """The rule as docs/api.md has it: ≥ in float32, of the score or of its share of the best."""
    values = [float(score) for score in scores]
    best = values[0]
    if kind == "relative":
        values = [rounded(value / best) if best > 0 else 0.0 for value in values]
    return [value >= rounded(tau) for value in values]


class Fixed:
    """Encoder and index of one list of results."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores

    def tokenize(self, texts, role):
        return [*map(TextTokens, texts)]

    def embed(self, tokens):
        return np.ones((len(tokens), 1), dtype=np.float32)

    def search(self, queries, k):
        return TopK(self.scores[None, :k], np.arange(len(self.scores))[None, :k])


def answer(kind: str, scores: np.ndarray, tau: float | None, query: Query, k: int = 5) -> Answer:
    fixed = Fixed(scores)
    return Retriever(fixed, fixed, Policy(kind, tau, k)).search([query])[0]


@given(KINDS, LISTS, NUMBERS)
def test_keep_equals_rule(kind: str, scores: np.ndarray, tau: float) -> None:
    found = keep(POLICIES[kind].decide(scores[None], None), Policy(kind, tau, 5).threshold)
    assert found[0].tolist() == literal(kind, scores, tau)


@given(KINDS, LISTS, NUMBERS, NUMBERS)
def test_higher_threshold_keeps_no_more(kind: str, scores: np.ndarray, one: float, other: float) -> None:
    low, high = sorted((one, other))
    decisions = POLICIES[kind].decide(scores[None], None)
    assert not (keep(decisions, np.float32(high)) & ~keep(decisions, np.float32(low))).any()


@given(KINDS, LISTS, NUMBERS)
def test_prefix_is_kept_with_equal_scores(kind: str, scores: np.ndarray, tau: float) -> None:
    kept = keep(POLICIES[kind].decide(scores[None], None), np.float32(tau))[0]
    assert kept.tolist() == sorted(kept.tolist(), reverse=True)
    for one, other in zip(range(len(scores)), range(1, len(scores)), strict=False):
        assert scores[one] != scores[other] or kept[one] == kept[other]


@given(KINDS, LISTS, NUMBERS, st.integers(1, 9), st.integers(0, 9), st.one_of(st.none(), NUMBERS))
def test_answer_equals_rule_with_min_results(
    kind: str, scores: np.ndarray, tau: float, k: int, least: int, threshold: float | None
) -> None:
    least = min(least, k)
    found = answer(kind, scores, tau, Query("q", k, threshold, least))
    considered = min(k, len(scores))
    passing = literal(kind, scores, tau if threshold is None else threshold)[:considered].count(True)
    assert found.ranks.tolist() == [*range(1, max(passing, min(least, considered)) + 1)]
    assert found.scores.tolist() == scores[: len(found.ranks)].tolist()
    assert found.positions.tolist() == [rank - 1 for rank in found.ranks]
    assert (found.considered, found.best_score) == (considered, float(scores[0]))
    assert found.threshold == rounded(tau if threshold is None else threshold)
    assert found.reason == (None if len(found.ranks) else "all_below_threshold")
    assert found.below_threshold.tolist() == [rank > passing for rank in found.ranks]
    assert found.calibrated == (threshold is None and k <= 5 and len(found.ranks) == passing)


@given(LISTS, st.integers(1, 9), st.integers(0, 9))
def test_policy_none_keeps_all(scores: np.ndarray, k: int, least: int) -> None:
    found = answer("none", scores, None, Query("q", k, None, min(least, k)))
    assert len(found.ranks) == min(k, len(scores))
    assert not found.below_threshold.any()
    assert (found.threshold, found.calibrated, found.reason) == (None, False, None)
    dropped = answer("none", scores, None, Query("q", k, 2.0, 0))
    assert (len(dropped.ranks), dropped.reason) == (0, "all_below_threshold")


@given(KINDS, LISTS, NUMBERS, st.integers(1, 9))
def test_uncut_is_independent_of_request(kind: str, scores: np.ndarray, tau: float, k: int) -> None:
    answers = [answer(kind, scores, tau, query) for query in (Query("q", k, 0.5, 1), Query("q", 5))]
    assert [item.uncut_kept for item in answers] == [literal(kind, scores, tau)[:5].count(True)] * 2
    assert answers[0].uncut.tolist() == answers[1].uncut.tolist() == scores[:5].tolist()
