"""One comparator, ≥ in float32; 0.0 is a threshold and None is not."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.policy.policy import POLICIES, Policy, keep, relative
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.query import Answer, Query
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


def drawn_answer(kind: str, scores: np.ndarray, tau: float | None, query: Query, k: int = 5) -> Answer:
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
    found = drawn_answer(kind, scores, tau, Query("q", k, threshold, least))
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
    found = drawn_answer("none", scores, None, Query("q", k, None, min(least, k)))
    assert len(found.ranks) == min(k, len(scores))
    assert not found.below_threshold.any()
    assert (found.threshold, found.calibrated, found.reason) == (None, False, None)
    dropped = drawn_answer("none", scores, None, Query("q", k, 2.0, 0))
    assert (len(dropped.ranks), dropped.reason) == (0, "all_below_threshold")


@given(KINDS, LISTS, NUMBERS, st.integers(1, 9))
def test_uncut_is_independent_of_request(kind: str, scores: np.ndarray, tau: float, k: int) -> None:
    answers = [drawn_answer(kind, scores, tau, query) for query in (Query("q", k, 0.5, 1), Query("q", 5))]
    assert [item.uncut_kept for item in answers] == [literal(kind, scores, tau)[:5].count(True)] * 2
    assert answers[0].uncut.tolist() == answers[1].uncut.tolist() == scores[:5].tolist()


# Best first. The last two queries resemble nothing: their best score is 0, and below it.
RELATIVE_SCORES = np.array(
    [
        [0.9, 0.81, 0.45, 0.09, -0.18],
        [0.3, 0.3, 0.1, 0.0, -0.3],
        [1e-6, 5e-7, 0.0, -1e-6, -0.5],
        [0.0, 0.0, -0.1, -0.2, -0.3],
        [-0.1, -0.1, -0.2, -0.4, -0.5],
    ],
    dtype=np.float32,
)


class NumberedQueries:
    """An encoder whose texts are row numbers, as vectors of one number."""

    def tokenize(self, texts, role):
        return [*map(TextTokens, texts)]

    def embed(self, tokens):
        return np.array([[float(text)] for text in tokens], dtype=np.float32)


class RelativeIndex:
    """SCORES, with documents numbered by row and rank."""

    def search(self, queries, k):
        rows = queries[:, 0].astype(int)
        positions = 10 * rows[:, None] + np.arange(RELATIVE_SCORES.shape[1])
        return TopK(RELATIVE_SCORES[rows][:, :k], positions[:, :k])


def answers(tau: float, k: int = 5, **asked):
    retriever = Retriever(NumberedQueries(), RelativeIndex(), Policy("relative", tau, k=5))
    return retriever.search([Query(str(row), k=k, **asked) for row in range(len(RELATIVE_SCORES))])


def test_relative_share_is_rounded_once() -> None:
    rng = np.random.default_rng(0)
    scores = -np.sort(-rng.uniform(-0.2, 1, size=(300, 7)), axis=1).astype(np.float32)
    found = relative(scores)
    assert found.dtype == np.float32
    for row, shares in zip(scores, found, strict=True):
        best = float(row[0])
        literal = [np.float32(float(score) / best) if best > 0 else np.float32(0) for score in row]
        assert shares.tolist() == literal
        assert (np.diff(shares) <= 0).all()
    assert (found[scores[:, 0] > 0, 0] == 1).all()


@pytest.mark.parametrize("row", [3, 4])
def test_share_of_nonpositive_best_is_zero(row: int) -> None:
    assert relative(RELATIVE_SCORES[row : row + 1]).tolist() == [[0, 0, 0, 0, 0]]
    for tau in (1e-30, 0.5, 1.0):
        found = answers(tau)[row]
        assert (len(found.positions), found.reason) == (0, "all_below_threshold")
        assert found.best_score == RELATIVE_SCORES[row, 0]
    assert len(answers(0.0)[row].positions) == 5, "0 is a share, and theirs"


@pytest.mark.parametrize(
    ("tau", "kept"), [(1.0, [1, 2, 1, 0, 0]), (0.5, [3, 2, 2, 0, 0]), (0.1, [4, 3, 2, 0, 0]), (0.0, [4, 4, 3, 5, 5])]
)
def test_share_cut_keeps_prefix(tau: float, kept: list[int]) -> None:
    for row, (answer, count) in enumerate(zip(answers(tau), kept, strict=True)):
        assert answer.positions.tolist() == [10 * row + rank for rank in range(count)]
        assert (answer.policy, answer.calibrated) == ("relative", True)


def test_negative_tau_keeps_negative_shares() -> None:
    """τ is negative if a relevant document had such a share: only results further below are dropped."""
    assert [len(answer.positions) for answer in answers(-0.25)] == [5, 4, 3, 5, 5]
    assert [len(answer.positions) for answer in answers(-1.0)] == [5, 5, 4, 5, 5]


def test_share_equal_to_tau_is_kept() -> None:
    """0.81 / 0.9 is not 0.9 in binary, and τ is rounded as the shares are."""
    share = relative(RELATIVE_SCORES[:1])[0, 1]
    assert len(answers(float(share))[0].positions) == 2
    assert len(answers(float(np.nextafter(share, np.float32(1))))[0].positions) == 1


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_smaller_k_keeps_calibrated_prefix(k: int) -> None:
    for whole, part in zip(answers(0.5), answers(0.5, k=k), strict=True):
        assert part.positions.tolist() == whole.positions[:k].tolist()
        assert (part.calibrated, part.considered) == (True, k)


def test_larger_k_is_not_calibrated() -> None:
    assert not any(answer.calibrated for answer in answers(0.5, k=6))


def test_requested_threshold_is_share() -> None:
    found = answers(0.99, threshold=0.5)
    assert [len(answer.positions) for answer in found] == [3, 2, 2, 0, 0]
    assert [(answer.threshold, answer.calibrated) for answer in found] == [(0.5, False)] * 5
    assert [len(answer.positions) for answer in answers(0.5, threshold=1.01)] == [0] * 5


def test_min_results_reach_below_share() -> None:
    for row, answer in enumerate(answers(0.5, min_results=3)):
        assert answer.positions.tolist() == [10 * row + rank for rank in range(3)]
        assert answer.scores.tolist() == RELATIVE_SCORES[row, :3].tolist()


def test_decision_scores_follow_policy() -> None:
    probabilities = np.full(RELATIVE_SCORES.shape, 0.25, dtype=np.float32)
    assert POLICIES["similarity"].decide(RELATIVE_SCORES, probabilities) is RELATIVE_SCORES
    assert POLICIES["none"].decide(RELATIVE_SCORES, None) is RELATIVE_SCORES
    assert POLICIES["probability"].decide(RELATIVE_SCORES, probabilities) is probabilities
    assert POLICIES["relative"].decide(RELATIVE_SCORES, None).tolist() == relative(RELATIVE_SCORES).tolist()
    with pytest.raises(ValueError, match="probability"):
        POLICIES["probability"].decide(RELATIVE_SCORES, None)


def test_no_queries_have_no_shares() -> None:
    assert relative(np.empty((0, 5), dtype=np.float32)).shape == (0, 5)
    assert keep(relative(RELATIVE_SCORES), None).all()
