"""The share of the best score: its definition, also if nothing resembles the query, and its cut."""

import numpy as np
import pytest

from taugate.policy.policy import POLICIES, Policy, keep, relative
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.query import Query
from taugate.retrieval.retriever import Retriever
from tests.retrieval.text_tokens import TextTokens

# Best first. The last two queries resemble nothing: their best score is 0, and below it.
SCORES = np.array(
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


class FixedIndex:
    """SCORES, with documents numbered by row and rank."""

    def search(self, queries, k):
        rows = queries[:, 0].astype(int)
        positions = 10 * rows[:, None] + np.arange(SCORES.shape[1])
        return TopK(SCORES[rows][:, :k], positions[:, :k])


def answers(tau: float, k: int = 5, **asked):
    retriever = Retriever(NumberedQueries(), FixedIndex(), Policy("relative", tau, k=5))
    return retriever.search([Query(str(row), k=k, **asked) for row in range(len(SCORES))])


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
    assert relative(SCORES[row : row + 1]).tolist() == [[0, 0, 0, 0, 0]]
    for tau in (1e-30, 0.5, 1.0):
        found = answers(tau)[row]
        assert (len(found.positions), found.reason) == (0, "all_below_threshold")
        assert found.best_score == SCORES[row, 0]
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
    share = relative(SCORES[:1])[0, 1]
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
        assert answer.scores.tolist() == SCORES[row, :3].tolist()


def test_decision_scores_follow_policy() -> None:
    probabilities = np.full(SCORES.shape, 0.25, dtype=np.float32)
    assert POLICIES["similarity"].decide(SCORES, probabilities) is SCORES
    assert POLICIES["none"].decide(SCORES, None) is SCORES
    assert POLICIES["probability"].decide(SCORES, probabilities) is probabilities
    assert POLICIES["relative"].decide(SCORES, None).tolist() == relative(SCORES).tolist()
    with pytest.raises(ValueError, match="probability"):
        POLICIES["probability"].decide(SCORES, None)


def test_no_queries_have_no_shares() -> None:
    assert relative(np.empty((0, 5), dtype=np.float32)).shape == (0, 5)
    assert keep(relative(SCORES), None).all()
