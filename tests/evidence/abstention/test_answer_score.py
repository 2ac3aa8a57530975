"""Which score refuses queries: chosen on some documents, certified on others, the same that is served."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from taugate.evidence.abstention.choose import (
    ChosenScore,
    EncodedCorpus,
    LabelledGroups,
    QueryGroup,
    choose_score,
    fit_score_model,
    out_of_fold,
)
from taugate.policy.abstention import SIGNALS
from taugate.retrieval.index.flat import FlatIndex
from tests.document_words import document_words
from tests.vectors import unit

D, K, DOCUMENTS, EACH = 16, 5, 60, 6  # EACH queries of either kind on a document
GAMMA = 0.1
Change = Callable[[int, np.random.Generator], np.ndarray]


def world(seed: int = 0, documents: int = DOCUMENTS, spread: float = 1.0, words: bool = False) -> tuple:
    """Answerable queries lie near their document, unanswerable ones further off by `spread`.

    Args:
        words: Of an answerable query are then its document's, of an unanswerable one nobody's.
    """
    rng = np.random.default_rng(seed)
    corpus = unit(rng.normal(size=(documents, D)))
    index = FlatIndex.build(corpus)
    about = np.repeat(np.arange(documents), EACH)

    def side(noise: float, *, answerable: bool) -> QueryGroup:
        vectors = unit(corpus[about] + noise * rng.normal(size=(len(about), D)))
        known = [f"term{document}" if answerable or not words else f"other{row}" for row, document in enumerate(about)]
        return QueryGroup([f"what {word}" for word in known], vectors, index.search(vectors, K), about)

    texts = [f"here is term{document}" for document in range(documents)]
    return (
        side(0.15, answerable=True),
        side(0.15 * spread, answerable=False),
        EncodedCorpus(corpus, document_words(texts)),
    )


def choose(answerable: QueryGroup, unanswerable: QueryGroup, corpus: EncodedCorpus, seed: int = 0) -> ChosenScore:
    return choose_score(grouped(answerable, unanswerable, corpus, seed), GAMMA)


def grouped(answerable: QueryGroup, unanswerable: QueryGroup, corpus: EncodedCorpus, seed: int = 0) -> LabelledGroups:
    return LabelledGroups(answerable, unanswerable, corpus, np.arange(len(answerable.texts)), seed)


def certifying(*data: Any, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the answerable and of the unanswerable queries that certify."""
    return grouped(*data, seed=seed).division.certify


def test_separating_words_choose_model() -> None:
    result = choose(*world(words=True))
    answered = {item.name: item.answered for item in result.candidates}
    assert result.score.name == "model"
    assert answered["model"] == 0
    assert answered["best_similarity"] == pytest.approx(1 - GAMMA, abs=0.1)
    assert next(item for item in result.candidates if item.name == "model").auroc == 1


def test_best_similarity_is_kept_unless_the_model_separates_better() -> None:
    """The queries differ in their best similarity alone, so that other signals only add noise."""
    taken = [choose(*world(seed, spread=1.6), seed=seed) for seed in range(6)]
    for result in taken:
        best, model = result.candidates
        assert (best.name, model.name) == ("best_similarity", "model")
        assert model.answered <= best.answered + 0.1 or result.score.name == "best_similarity"
    assert "best_similarity" in {result.score.name for result in taken}


def test_learning_and_certifying_documents_differ() -> None:
    answerable, unanswerable, corpus = world(spread=2)
    rows = certifying(answerable, unanswerable, corpus)
    certify = {*answerable.clusters[rows[0]]} | {*unanswerable.clusters[rows[1]]}
    learn = {*np.delete(answerable.clusters, rows[0])} | {*np.delete(unanswerable.clusters, rows[1])}
    assert not certify & learn
    assert len(certify) + len(learn) == DOCUMENTS
    assert len(rows[0]) == len(rows[1]) == round(0.6 * DOCUMENTS) * EACH
    assert (np.diff(rows[0]) > 0).all()


def test_certifying_queries_change_no_score() -> None:
    """Their vectors may be anything: the score is the same."""
    answerable, unanswerable, corpus = world(spread=2, words=True)
    result = choose(answerable, unanswerable, corpus)
    vectors = unanswerable.vectors.copy()
    rows = certifying(answerable, unanswerable, corpus)[1]
    vectors[rows] = answerable.vectors[rows]
    moved = QueryGroup(
        unanswerable.texts, vectors, FlatIndex.build(corpus.vectors).search(vectors, K), unanswerable.clusters
    )
    again = choose(answerable, moved, corpus)
    assert (again.score.name, again.candidates) == (result.score.name, result.candidates)
    assert again.answerable.tolist() == result.answerable.tolist()


def test_held_out_queries_are_unused() -> None:
    answerable, unanswerable, corpus = world(spread=2)
    calibration = np.flatnonzero(np.arange(len(answerable.texts)) % EACH < 4)
    groups = LabelledGroups(answerable, unanswerable, corpus, calibration, 0)
    result = choose_score(groups, GAMMA)
    assert {*groups.division.certify[0]} < {*calibration}
    assert len(result.answerable) == len(answerable.texts)


@pytest.mark.parametrize("documents", [1, 10])
def test_too_few_queries_skip_choice(documents: int) -> None:
    """Of 60 queries of a kind four tenths are 24; of one document nobody is left where it learns."""
    answerable, unanswerable, corpus = world(documents=documents, words=True)
    result = choose(answerable, unanswerable, corpus)
    assert (result.score.name, [item.name for item in result.candidates]) == ("best_similarity", ["best_similarity"])
    rows = certifying(answerable, unanswerable, corpus)
    assert (len(rows[0]), len(rows[1])) == (len(answerable.texts), len(unanswerable.texts))
    assert result.answerable.tolist() == answerable.top.scores[:, 0].tolist()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("spread", "words"), [(1.0, False), (1.5, True)])
def test_served_scores_equal_calibrated_bits(seed: int, spread: float, words: bool) -> None:
    answerable, unanswerable, corpus = world(seed, spread=spread, words=words)
    result = choose(answerable, unanswerable, corpus, seed)
    for side, scores in ((answerable, result.answerable), (unanswerable, result.unanswerable)):
        assert result.score.of(side.texts, side.vectors, side.top).tolist() == scores.tolist()
        assert result.curves[result.score.name][0].tolist() == result.answerable.tolist()


def test_seed_determines_the_parts() -> None:
    data = world(spread=2)
    one, same = choose(*data), choose(*data)
    assert one.candidates == same.candidates
    assert one.answerable.tobytes() == same.answerable.tobytes()
    assert certifying(*data)[0].tolist() != certifying(*data, seed=1)[0].tolist()


def test_answered_share_equals_plain_loop() -> None:
    """At the largest threshold that refuses at most γ of the learning answerable queries."""
    answerable, unanswerable, corpus = world(spread=2)
    result = choose(answerable, unanswerable, corpus)
    rows = certifying(answerable, unanswerable, corpus)
    right = np.delete(answerable.top.scores[:, 0], rows[0])
    wrong = np.delete(unanswerable.top.scores[:, 0], rows[1])
    limit = max(tau for tau in right if (right < tau).mean() <= GAMMA)
    assert result.candidates[0].answered == pytest.approx((wrong >= limit).mean())


def test_model_finds_separating_direction() -> None:
    """Log-odds 2·x₀ − x₁ by construction, with eight in nine unanswerable: the order is all that is wanted."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(20_000, len(SIGNALS)))
    values[:, 3] = 7.0  # a signal that is always the same
    truth = 2 * values[:, 0] - values[:, 1]
    answerable = rng.random(len(values)) < 1 / (1 + np.exp(2.5 - truth))
    model = fit_score_model(values, answerable)
    weights = model.weights / model.scale
    assert weights[0] / weights[1] == pytest.approx(-2, rel=0.1)
    assert np.corrcoef(model.log_odds(values), truth)[0, 1] > 0.995


def test_out_of_fold_excludes_own_documents() -> None:
    """Each document's queries are all answerable or all not, by chance, and alike: a model that has seen them knows."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 10)
    answerable = (rng.random(40) < 0.5)[labels]
    values = rng.normal(size=(40, 8))[labels]
    seen = fit_score_model(values, answerable).log_odds(values)
    unseen = out_of_fold(values, answerable, labels)
    assert np.isfinite(unseen).all()
    assert seen[answerable].mean() - seen[~answerable].mean() > 0.5
    assert unseen[answerable].mean() - unseen[~answerable].mean() < 0.5


def test_single_kind_fold_gives_nan() -> None:
    labels = np.array([0, 0, 1, 2, 3, 4])
    answerable = np.array([False, False, True, True, True, True])
    assert np.isnan(out_of_fold(np.random.default_rng(0).normal(size=(6, 2)), answerable, labels)[:2]).all()
