"""Scores of queries: their signals, independence of batches, and files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from taugate.errors import ReleaseError
from taugate.policy.abstention import MODEL_SIGNALS, SIGNALS, AnswerRule, AnswerScore, ScoreName, Signals, signals_of
from taugate.policy.policy import Policy, StratumThresholds
from taugate.policy.relevance import Logistic
from taugate.retrieval.documents.filters import OneOf
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.lexical import index_of, word_reader
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.query import Query
from taugate.retrieval.retriever import Retriever
from tests.document_words import all_signals
from tests.retrieval.text_tokens import TextTokens

N, D, K = 40, 8, 5
RNG = np.random.default_rng(3)
WORDS = np.array(["oil", "crisis", "price", "embargo", "the", "of", "year", "opec", "barrel", "market"])
TEXTS = [" ".join(RNG.choice(WORDS, size=6)) for _ in range(N)]
QUESTIONS = [" ".join(RNG.choice(WORDS, size=3)) + " when" for _ in range(17)]


def unit(rows: int) -> np.ndarray:
    vectors = RNG.normal(size=(rows, D)) + 0.5
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


DOCUMENTS, QUERIES = unit(N), unit(len(QUESTIONS))
TOP = FlatIndex.build(DOCUMENTS).search(QUERIES, K)
FLOORS = {"bm25": 0.5, "dense": -1.0}
EVERYTHING = replace(all_signals(K, DOCUMENTS, TEXTS), floors=FLOORS)
COMPONENTS = {name: RNG.normal(size=(len(QUESTIONS), 12)).astype(np.float32) for name in FLOORS}
COMPONENTS["bm25"][::3] = np.nan  # the component returned none of the results, or not all of them
COMPONENTS["bm25"][1::3, ::2] = np.nan
STORED = [Document(str(row), text) for row, text in enumerate(TEXTS)]
SIZES = {name: len(signals_of(name, FLOORS)) for name in ("model", "components")}
MODELS = {name: Logistic(np.zeros(size), np.ones(size), RNG.normal(size=size), 0.25) for name, size in SIZES.items()}
NAMES: tuple[ScoreName, ...] = get_args(ScoreName)


def score(name: ScoreName) -> AnswerScore:
    return AnswerScore(name, EVERYTHING.needed(name), MODELS.get(name))


def take(rows: slice) -> tuple[list[str], np.ndarray, TopK, dict[str, np.ndarray]]:
    components = {name: values[rows, :K] for name, values in COMPONENTS.items()}
    return QUESTIONS[rows], QUERIES[rows], TopK(TOP.scores[rows], TOP.positions[rows]), components


def test_scores_equal_definitions() -> None:
    similar = QUERIES.astype(np.float64) @ DOCUMENTS.T
    np.testing.assert_array_equal(score("best_similarity").of(*take(slice(None))), TOP.scores[:, 0])
    ranked = np.sort(similar, axis=1)[:, ::-1]
    expected = {
        "margin": ranked[:, 0] - ranked[:, 1:K].mean(axis=1),
        "z": (ranked[:, 0] - similar.mean(axis=1)) / similar.std(axis=1),
        "lexical": [
            EVERYTHING.words.match(text, found).bm25.max() for text, found in zip(QUESTIONS, TOP.positions, strict=True)
        ],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(score(name).of(*take(slice(None))), values, atol=1e-6)
    signals = EVERYTHING.values(MODEL_SIGNALS, *take(slice(None)))
    expected_odds = signals @ MODELS["model"].weights + 0.25
    np.testing.assert_allclose(score("model").of(*take(slice(None))), expected_odds, rtol=1e-6)


def test_component_signals_count_a_missing_score_as_the_lowest_of_the_query() -> None:
    names = signals_of("components", ("bm25",))
    values = np.array([[7.0, np.nan, 9.0], [np.nan, np.nan, np.nan]], dtype=np.float32)
    top = TopK(np.array([[0.03, 0.02, 0.01]] * 2, dtype=np.float32), np.zeros((2, 3), dtype=np.int64))
    found = Signals(3, floors={"bm25": 0.5}).values(names, QUESTIONS[:2], QUERIES[:2], top, {"bm25": values})
    assert names == ("best_similarity", "bm25: best_score", "bm25: gap_to_mean")
    np.testing.assert_allclose(found, [[0.03, 9, 9 - 23 / 3], [0.03, 0.5, 0]], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_score_is_independent_of_batch(name: ScoreName) -> None:
    together = score(name).of(*take(slice(None)))
    alone = [score(name).of(*take(slice(row, row + 1)))[0] for row in range(len(QUESTIONS))]
    assert together.dtype == np.float32
    assert together.tolist() == alone


@pytest.mark.parametrize("name", NAMES)
def test_results_beyond_k_do_not_count(name: ScoreName) -> None:
    more = FlatIndex.build(DOCUMENTS).search(QUERIES, 12)
    assert score(name).of(QUESTIONS, QUERIES, more, COMPONENTS).tolist() == score(name).of(*take(slice(None))).tolist()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("left", [0, 1, 2])
def test_score_of_few_results_and_none(name: ScoreName, left: int) -> None:
    top = TopK(TOP.scores[:, :left], TOP.positions[:, :left])
    found = score(name).of(QUESTIONS, QUERIES, top, COMPONENTS)
    assert np.isfinite(found).all() if left else (found == -np.inf).all()


def test_score_equal_to_tau_is_answered() -> None:
    best = float(TOP.scores[4, 0])
    answered = AnswerRule(score("best_similarity"), best).answered(*take(slice(None))[:3])
    assert answered.tolist() == (TOP.scores[:, 0] >= TOP.scores[4, 0]).tolist()
    assert 0 < answered.sum() < len(answered)


def read(path: Path, name: str) -> AnswerScore:
    words = EVERYTHING.words
    return AnswerScore.load(path, name, D, word_reader(STORED, index_of(words)), tuple(FLOORS))


@pytest.mark.parametrize("name", NAMES)
def test_saved_score_is_read_back(name: ScoreName, tmp_path: Path) -> None:
    score(name).save(tmp_path / "score")
    again = read(tmp_path / "score", name)
    assert again.of(*take(slice(None))).tolist() == score(name).of(*take(slice(None))).tolist()
    assert (again.signals.words is None) == (name not in {"lexical", "model"})
    assert (again.signals.moments is None) == (name not in {"z", "model"})


@pytest.mark.parametrize("name", ["lexical", "model"])
def test_score_by_words_without_their_file_is_refused(name: ScoreName, tmp_path: Path) -> None:
    score(name).save(tmp_path / "score")
    with pytest.raises(ReleaseError, match="does not hold the words of these documents; calibrate again"):
        AnswerScore.load(tmp_path / "score", name, D, word_reader(STORED))


def with_(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[dict], dict]:
    return lambda arrays: arrays | {name: np.ascontiguousarray(change(arrays[name]))}


CHANGES: dict[str, Callable[[dict], dict]] = {
    "nothing": lambda arrays: {},
    "one array too few": lambda arrays: {name: each for name, each in arrays.items() if name != "weights"},
    "one array too many": lambda arrays: arrays | {"more": np.zeros(3)},
    "k of nothing": with_("k", lambda k: k * 0),
    "k a fraction": with_("k", lambda k: k.astype(np.float64)),
    "several k": with_("k", lambda k: np.repeat(k, 2)),
    "weights not numbers": with_("weights", lambda weights: weights * np.nan),
    "weights of other signals": with_("weights", lambda weights: weights[:-1]),
    "weights in float32": with_("weights", lambda weights: weights.astype(np.float32)),
    "scale zero": with_("scale", lambda scale: scale * 0),
}


MOMENTS = {
    "moments of fewer documents": with_("mean", lambda mean: mean[:-1]),
    "moments not finite": with_("covariance", lambda covariance: covariance + np.inf),
    "a covariance of fewer dimensions": with_("covariance", lambda covariance: covariance[:1]),
}
FLOOR = {"floors of fewer components": with_("floors", lambda floors: floors[:-1])}
OTHERS = [("model", CHANGES), ("z", MOMENTS), ("components", FLOOR)]


@pytest.mark.parametrize(
    ("name", "change"),
    [pytest.param(name, change, id=what) for name, changes in OTHERS for what, change in changes.items()],
)
def test_invalid_score_file_is_refused(name: str, change: Callable[[dict], dict], tmp_path: Path) -> None:
    path = tmp_path / "score"
    score(name).save(path)
    save_file(change(load_file(path)), path)
    with pytest.raises(ReleaseError, match="calibrate again"):
        read(path, name)


@pytest.mark.parametrize("name", ["best_similarity", "unheard of", "../model", ""])
def test_file_of_other_score_is_refused(name: str, tmp_path: Path) -> None:
    score("model").save(tmp_path / "score")
    with pytest.raises(ReleaseError, match="does not hold the score"):
        read(tmp_path / "score", name)


def test_non_safetensors_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "score").write_bytes(b"x" * 50)
    with pytest.raises(ReleaseError, match="safetensors"):
        read(tmp_path / "score", "z")


def test_score_of_single_document() -> None:
    """K = 1: there is nothing to stand out from, and no deviation, but all are numbers."""
    signals = all_signals(1, DOCUMENTS[:1], TEXTS[:1])
    top = FlatIndex.build(DOCUMENTS[:1]).search(QUERIES, 1)
    assert np.isfinite(signals.values(SIGNALS, QUESTIONS, QUERIES, top)).all()
    assert (replace(score("margin"), signals=signals).of(QUESTIONS, QUERIES, top) == 0).all()


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


def test_score_equal_to_rho_is_answered() -> None:
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
