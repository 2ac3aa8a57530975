"""Which score refuses queries: chosen on some documents, certified on others, the same that is served."""

from collections.abc import Callable

import numpy as np
import pytest

from taugate.calibration.abstention.choose import (
    ChosenScore,
    EncodedCorpus,
    QueryGroup,
    _answered,
    choose_score,
    fit_score_model,
    out_of_fold,
)
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.policy.abstention import SIGNALS
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
    return side(0.15, answerable=True), side(0.15 * spread, answerable=False), EncodedCorpus(corpus, texts)


def choose(answerable: QueryGroup, unanswerable: QueryGroup, corpus: EncodedCorpus, seed: int = 0) -> ChosenScore:
    return choose_score(answerable, unanswerable, corpus, np.arange(len(answerable.texts)), GAMMA, seed)


def test_words_that_tell_the_two_apart_are_found() -> None:
    found = choose(*world(words=True))
    answered = {each.name: each.answered for each in found.candidates}
    assert found.score.name == "lexical"
    assert answered["lexical"] == 0
    assert answered["best_similarity"] == pytest.approx(1 - GAMMA, abs=0.1)
    assert next(each for each in found.candidates if each.name == "lexical").auroc == 1


def test_where_nothing_helps_the_simplest_is_taken() -> None:
    """Both kinds are drawn alike: all scores are guesses, and a more complicated one wins now and then by luck."""
    taken = [choose(*world(seed), seed=seed).score.name for seed in range(8)]
    assert max({*taken}, key=taken.count) == "best_similarity"


def test_similarities_alone_are_not_beaten_by_more_than_luck() -> None:
    found = choose(*world(spread=4))
    best = next(each for each in found.candidates if each.name == "best_similarity")
    assert best.auroc > 0.9
    assert best.answered - min(each.answered for each in found.candidates) <= 2 * best.standard_error
    assert [each.name for each in found.candidates] == ["best_similarity", "margin", "z", "lexical", "model"]


def test_no_document_has_a_say_in_what_it_certifies() -> None:
    answerable, unanswerable, corpus = world(spread=2)
    found = choose(answerable, unanswerable, corpus)
    certify = {*answerable.labels[found.certify_answerable]} | {*unanswerable.labels[found.certify_unanswerable]}
    learn = {*np.delete(answerable.labels, found.certify_answerable)}
    learn |= {*np.delete(unanswerable.labels, found.certify_unanswerable)}
    assert not certify & learn
    assert len(certify) + len(learn) == DOCUMENTS
    assert len(found.certify_answerable) == len(found.certify_unanswerable) == round(0.6 * DOCUMENTS) * EACH
    assert (np.diff(found.certify_answerable) > 0).all()


def test_labels_of_those_that_certify_change_nothing() -> None:
    """Their vectors may be anything: the score is the same."""
    answerable, unanswerable, corpus = world(spread=2, words=True)
    found = choose(answerable, unanswerable, corpus)
    vectors = unanswerable.vectors.copy()
    vectors[found.certify_unanswerable] = answerable.vectors[found.certify_unanswerable]
    moved = QueryGroup(
        unanswerable.texts, vectors, FlatIndex.build(corpus.vectors).search(vectors, K), unanswerable.labels
    )
    again = choose(answerable, moved, corpus)
    assert (again.score.name, again.candidates) == (found.score.name, found.candidates)
    assert again.answerable.tolist() == found.answerable.tolist()


def test_queries_held_out_neither_learn_nor_certify() -> None:
    answerable, unanswerable, corpus = world(spread=2)
    calibration = np.flatnonzero(np.arange(len(answerable.texts)) % EACH < 4)
    found = choose_score(answerable, unanswerable, corpus, calibration, GAMMA, 0)
    assert {*found.certify_answerable} < {*calibration}
    assert len(found.answerable) == len(answerable.texts)


@pytest.mark.parametrize("documents", [1, 10])
def test_with_too_few_to_learn_from_nobody_chooses(documents: int) -> None:
    """Of 60 queries of a kind four tenths are 24; of one document nobody is left where it learns."""
    answerable, unanswerable, corpus = world(documents=documents, words=True)
    found = choose(answerable, unanswerable, corpus)
    assert (found.score.name, [each.name for each in found.candidates]) == ("best_similarity", ["best_similarity"])
    assert len(found.certify_answerable) == len(answerable.texts)
    assert len(found.certify_unanswerable) == len(unanswerable.texts)
    assert found.answerable.tolist() == answerable.top.scores[:, 0].tolist()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("spread", "words"), [(1.0, False), (1.5, True)])
def test_what_is_served_is_what_was_calibrated_to_the_bit(seed: int, spread: float, words: bool) -> None:
    answerable, unanswerable, corpus = world(seed, spread=spread, words=words)
    found = choose(answerable, unanswerable, corpus, seed)
    for side, scores in ((answerable, found.answerable), (unanswerable, found.unanswerable)):
        assert found.score.of(side.texts, side.vectors, side.top).tolist() == scores.tolist()
        assert found.curves[found.score.name][0].tolist() == found.answerable.tolist()


def test_the_same_seed_gives_the_same_score_and_another_one_other_parts() -> None:
    data = world(spread=2)
    one, same, other = choose(*data), choose(*data), choose(*data, seed=1)
    assert one.candidates == same.candidates
    assert one.answerable.tobytes() == same.answerable.tobytes()
    assert one.certify_answerable.tolist() != other.certify_answerable.tolist()


def test_the_share_answered_is_what_a_loop_counts() -> None:
    rng = np.random.default_rng(5)
    scores = np.round(rng.normal(size=80), 1)  # with ties
    has_answer = rng.random(80) < 0.5
    counts = rng.integers(0, 3, size=(7, 80)).astype(float)
    for refused, shares in zip((GAMMA, 0.3), _answered(scores, has_answer, counts, (GAMMA, 0.3)), strict=True):
        for row, share in zip(counts, shares, strict=True):
            drawn, kind = np.repeat(scores, row.astype(int)), np.repeat(has_answer, row.astype(int))
            most = max(tau for tau in scores[has_answer] if (drawn[kind] < tau).mean() <= refused)
            assert share == pytest.approx((drawn[~kind] >= most).mean())


def test_the_model_finds_what_orders_the_two_kinds() -> None:
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


def test_a_model_has_not_seen_the_documents_it_judges() -> None:
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


def test_a_fold_that_leaves_one_kind_gives_no_odds() -> None:
    labels = np.array([0, 0, 1, 2, 3, 4])
    answerable = np.array([False, False, True, True, True, True])
    assert np.isnan(out_of_fold(np.random.default_rng(0).normal(size=(6, 2)), answerable, labels)[:2]).all()
