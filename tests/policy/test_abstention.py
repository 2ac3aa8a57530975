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
from taugate.policy.relevance import Logistic
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.lexical import index_of, word_reader
from taugate.retrieval.index.top_k import TopK
from tests.document_words import all_signals

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
