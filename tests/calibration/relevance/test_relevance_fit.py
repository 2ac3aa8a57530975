"""The fit finds known coefficients, and what it says of a result equals a literal transcription of its features."""

import dataclasses
import math

import numpy as np
import pytest

from taugate.calibration.metrics.inputs import judge_queries
from taugate.calibration.relevance import estimate_relevance
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.relevance.fitting import EstimatedRelevance, RelevanceFit, map_probabilities
from taugate.evidence.relevance.fitting import fit_relevance as fit_by_document
from taugate.evidence.relevance.record import relevance_record
from taugate.policy.relevance import FEATURES
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.vectors import similarity
from tests.vectors import unit

K, DOCUMENTS, QUERIES, DIMENSION = 5, 120, 90, 12
UNITS = SamplingUnits.from_clusters(np.arange(QUERIES))  # no two queries share a document


def logistic_world(seed: int, q: int = 4000, k: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Features of very different scales whose true log-odds are known."""
    rng = np.random.default_rng(seed)
    values = rng.normal([10.0, -0.2, 300.0], [2.0, 0.05, 40.0], size=(q, k, 3))
    weights, intercept = np.array([0.6, 20.0, -0.02]), 2.0
    odds = intercept + values @ weights
    return values, rng.uniform(size=(q, k)) < 1 / (1 + np.exp(-odds)), weights, intercept


def fit(values: np.ndarray, relevant: np.ndarray, labels: np.ndarray | None = None) -> RelevanceFit | None:
    """Each query about a document of its own where no labels are given."""
    return fit_by_document(values, relevant, np.arange(len(values)) if labels is None else labels)


def raw(found: RelevanceFit) -> tuple[np.ndarray, float]:
    """The model's coefficients on features as they are, not standardised."""
    weights = found.model.weights / found.model.scale
    return weights, found.model.intercept - float(weights @ found.model.center)


def test_fit_recovers_known_coefficients() -> None:
    values, relevant, weights, intercept = logistic_world(0)
    result = fit(values, relevant)
    assert result is not None
    fitted, constant = raw(result)
    np.testing.assert_allclose(fitted * [2.0, 0.05, 40.0], weights * [2.0, 0.05, 40.0], atol=0.08)
    at_center = intercept + weights @ result.model.center
    assert constant + fitted @ result.model.center == pytest.approx(at_center, abs=0.08)
    flat = values.reshape(-1, 3)
    np.testing.assert_allclose(result.model.center, flat.mean(axis=0))
    np.testing.assert_allclose(result.model.scale, flat.std(axis=0))


def test_log_loss_is_out_of_fold() -> None:
    values, relevant, _, _ = logistic_world(1, q=200)
    result = fit(values, relevant)
    assert result is not None
    assert result.out_of_fold.shape == relevant.shape
    assert result.out_of_fold.dtype == np.float32
    message, true = result.out_of_fold.ravel().tolist(), relevant.ravel().tolist()
    literal = -sum(math.log(p if is_true else 1 - p) for p, is_true in zip(message, true, strict=True)) / len(message)
    assert result.log_loss == pytest.approx(literal, rel=1e-5)
    assert result.regularization in {0.03, 0.3, 3.0}
    changed = relevant.copy()
    changed[3] = ~changed[3]
    again = fit(values, changed)
    assert again is not None
    if again.regularization == result.regularization:
        np.testing.assert_array_equal(again.out_of_fold[3::5], result.out_of_fold[3::5])  # its own fold did not see it
        assert not np.array_equal(again.out_of_fold[0::5], result.out_of_fold[0::5])


def test_folds_divide_whole_documents() -> None:
    """Other labels of two documents leave what is said of the documents of their fold as it was, and of no other."""
    values, relevant, _, _ = logistic_world(1, q=200)
    labels = np.random.default_rng(0).permutation(40).repeat(5)
    changed = relevant.copy()
    changed[np.isin(labels, [2, 7])] ^= True
    result, again = fit(values, relevant, labels), fit(values, changed, labels)
    assert result is not None
    assert again is not None
    assert result.regularization == again.regularization
    same = (result.out_of_fold == again.out_of_fold).all(axis=1)
    assert same.tolist() == (labels % 5 == 2).tolist()


def test_single_document_gives_no_model() -> None:
    values, relevant, _, _ = logistic_world(1, q=50)
    assert fit(values, relevant, np.zeros(50, dtype=np.int64)) is None
    assert fit(values, relevant, np.arange(50) % 2) is not None


def test_uniform_labels_give_no_model() -> None:
    values, relevant, _, _ = logistic_world(2, q=40)
    assert fit(values, np.zeros_like(relevant)) is None
    assert fit(values, np.ones_like(relevant)) is None
    one = np.zeros_like(relevant)
    one[7, 0] = True  # in the fold of query 7 there is something, in the rest nothing
    assert fit(values, one) is None
    one[8, 0] = True
    assert fit(values, one) is not None
    assert fit(values, ~one) is not None


def test_constant_feature_is_harmless() -> None:
    values, relevant, _, _ = logistic_world(3, q=100)
    constant = np.concatenate([values, np.full((*relevant.shape, 1), 7.0)], axis=-1)
    result = fit(constant, relevant)
    assert result is not None
    assert np.isfinite(result.out_of_fold).all()
    assert result.model.weights[3] == pytest.approx(0, abs=1e-6)


def test_same_data_give_same_bits() -> None:
    values, relevant, _, _ = logistic_world(4, q=300)
    first, second = fit(values, relevant), fit(values.copy(), relevant.copy())
    assert first is not None
    assert second is not None
    assert first.model.weights.tobytes() == second.model.weights.tobytes()
    assert first.model.intercept == second.model.intercept
    assert first.out_of_fold.tobytes() == second.out_of_fold.tobytes()
    assert first.log_loss == second.log_loss


# A small corpus: documents, queries near one of them each, and the model that calibration fits on the first part.


class World:
    """Everything that `estimate` is given, and what it gives."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.documents = unit(rng.standard_normal((DOCUMENTS, DIMENSION)) + 0.4)
        targets = rng.integers(0, DOCUMENTS, size=QUERIES)
        self.queries = unit(self.documents[targets] + 0.35 * rng.standard_normal((QUERIES, DIMENSION)))
        self.lengths = rng.integers(20, 5000, size=DOCUMENTS)
        self.index = FlatIndex.build(self.documents)
        labelled = [LabelledQuery(f"q{row}", "?", {target: 1}) for row, target in enumerate(targets.tolist())]
        self.judged = judge_queries(labelled, self.queries, self.index, K)
        self.parts = QueryRoles.draw(np.arange(QUERIES), SamplingUnits.from_clusters(np.arange(QUERIES)), 0)
        unanswerable = unit(rng.standard_normal((7, DIMENSION)))
        self.unanswerable = (self.index.search(unanswerable, K), unanswerable)

    def estimated(self) -> EstimatedRelevance:
        result = estimate_relevance(self.judged, self.queries, self.parts, self.documents, self.lengths)
        assert result is not None
        return result


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def estimated(world: World) -> EstimatedRelevance:
    return world.estimated()


def literal_features(world: World, query: np.ndarray, scores: list[float], positions: list[int]) -> list[list[float]]:
    """One query's results, feature by feature, with every similarity of every background computed."""
    fitted_on = world.queries[world.parts.fit].astype(float)
    documents = world.documents.astype(float)
    any_document = [float(query.astype(float) @ document) for document in documents]
    query_mean, query_deviation = np.mean(any_document), np.std(any_document)
    with_documents = [[float(documents[p] @ other) for other in documents] for p in positions]
    with_queries = [[float(documents[p] @ other) for other in fitted_on] for p in positions]
    query_z = [(score - query_mean) / query_deviation for score in scores]
    document_z = [(s - np.mean(x)) / np.std(x) for s, x in zip(scores, with_documents, strict=True)]
    asked_z = [(s - np.mean(x)) / np.std(x) for s, x in zip(scores, with_queries, strict=True)]
    rows = []
    for rank, (score, position) in enumerate(zip(scores, positions, strict=True)):
        rows.append(
            [
                score,
                score / scores[0] if scores[0] > 0 else 0.0,
                score - scores[rank + 1] if rank + 1 < K else 0.0,
                math.log(rank + 1),
                scores[0],
                np.mean(scores[:K]),
                np.std(scores[:K]),
                scores[0] - scores[1],
                query_z[rank],
                query_z[0],
                query_z[0] - query_z[rank],
                document_z[rank],
                max(document_z[:K]) - document_z[rank],
                asked_z[rank],
                max(asked_z[:K]) - asked_z[rank],
                math.log(1 + world.lengths[position]),
            ]
        )
    return rows


def test_features_equal_literal_transcription(world: World, estimated: EstimatedRelevance) -> None:
    model = estimated.relevance.model
    for query in range(QUERIES):
        scores, positions = world.judged.top.scores[query].tolist(), world.judged.top.positions[query].tolist()
        for rank, row in enumerate(literal_features(world, world.queries[query], scores, positions)):
            assert len(row) == len(FEATURES)
            pieces = zip(row, model.center, model.scale, model.weights, strict=True)
            odds = model.intercept + sum(weight * (value - at) / scale for value, at, scale, weight in pieces)
            p, curve = 1 / (1 + math.exp(-odds)), model.recalibration
            message = 1 / (1 + (1 - p) ** curve.b / p**curve.a / math.exp(curve.c))
            assert estimated.answerable[query, rank] == pytest.approx(message, abs=2e-5)


def test_model_fits_first_part_only(world: World, estimated: EstimatedRelevance) -> None:
    fit_rows = world.parts.fit
    values = np.array(
        [
            literal_features(world, world.queries[q], world.judged.top.scores[q].tolist(), row.tolist())
            for q, row in zip(fit_rows, world.judged.top.positions[fit_rows], strict=True)
        ]
    )
    literal = fit(values, world.judged.grades[fit_rows] >= 1)
    assert literal is not None
    assert literal.regularization == estimated.fit.regularization
    assert literal.log_loss == pytest.approx(estimated.fit.log_loss, rel=1e-4)
    np.testing.assert_allclose(literal.model.weights, estimated.fit.model.weights, rtol=5e-3, atol=5e-4)
    np.testing.assert_allclose(literal.out_of_fold, estimated.fit.out_of_fold, atol=1e-3)


def test_other_queries_change_recalibration_only(world: World, estimated: EstimatedRelevance) -> None:
    """In which order results come is the first part's alone."""
    rng = np.random.default_rng(1)
    remaining = world.parts.not_fitting
    other = World()
    other.judged.grades[remaining] = rng.integers(0, 3, size=(len(remaining), K))
    other.queries[remaining] = unit(rng.standard_normal((len(remaining), DIMENSION)))
    changed = other.estimated()
    for name in ("center", "scale", "weights", "intercept"):
        of_first = np.asarray(getattr(estimated.fit.model, name)).tobytes()
        for item in (changed.fit.model, changed.relevance.model, estimated.relevance.model):
            assert np.asarray(getattr(item, name)).tobytes() == of_first
    assert changed.relevance.model.recalibration != estimated.relevance.model.recalibration
    assert estimated.relevance.model.recalibration.kind != "none"
    assert changed.relevance.background.documents.tobytes() == estimated.relevance.background.documents.tobytes()
    assert changed.fit.out_of_fold.tobytes() == estimated.fit.out_of_fold.tobytes()


def test_batch_equals_single_estimates(world: World, estimated: EstimatedRelevance) -> None:
    top = world.judged.top
    for row in range(QUERIES):
        alone = estimated.relevance.estimate(
            world.queries[row : row + 1], TopK(top.scores[row : row + 1], top.positions[row : row + 1])
        )
        assert alone.tobytes() == estimated.answerable[row].tobytes()


@pytest.mark.parametrize("width", [K + 1, 20, DOCUMENTS])
def test_larger_k_keeps_first_estimates(world: World, estimated: EstimatedRelevance, width: int) -> None:
    wide = estimated.relevance.estimate(world.queries, world.index.search(world.queries, width))
    assert wide.shape == (QUERIES, width)
    assert wide[:, :K].tobytes() == estimated.answerable.tobytes()
    assert np.isfinite(wide).all()


def test_no_queries_get_no_relevance(world: World, estimated: EstimatedRelevance) -> None:
    top, vectors = world.unanswerable
    none = estimated.relevance.estimate(vectors[:0], TopK(top.scores[:0], top.positions[:0]))
    assert none.shape == (0, K)


def test_repeated_calibration_gives_same_bits(world: World, estimated: EstimatedRelevance) -> None:
    again = World().estimated()
    assert again.answerable.tobytes() == estimated.answerable.tobytes()
    assert again.relevance.background.covariance.tobytes() == estimated.relevance.background.covariance.tobytes()


def test_fitting_without_hits_gives_no_model() -> None:
    world = World()
    world.judged.grades[world.parts.fit] = 0
    assert estimate_relevance(world.judged, world.queries, world.parts, world.documents, world.lengths) is None


def test_results_equal_brute_force_search(world: World) -> None:
    """The transcription above starts from the top-K: here that is brute force as well."""
    everything = similarity(world.queries, np.repeat(world.documents[None], QUERIES, axis=0))
    order = np.argsort(-everything, axis=1, kind="stable")[:, :K]
    assert order.tolist() == world.judged.top.positions.tolist()


def test_unlabelled_results_change_nothing() -> None:
    """Whatever is written in their place, the model, its log loss and its map are the same."""
    values, relevant, _, _ = logistic_world(5, q=300)
    rng = np.random.default_rng(5)
    labelled = rng.random(relevant.shape) < 0.8
    other = np.where(labelled, relevant, ~relevant)
    result = [fit_by_document(values, item, np.arange(300), labelled) for item in (relevant, other)]
    assert result[0] is not None
    assert result[1] is not None
    assert result[0].model.weights.tobytes() == result[1].model.weights.tobytes()
    assert result[0].log_loss == result[1].log_loss
    everything = fit_by_document(values, relevant, np.arange(300))
    assert everything is not None
    assert everything.model.weights.tobytes() != result[0].model.weights.tobytes()
    recalibrated = map_probabilities(everything.model, values, relevant, labelled).recalibration
    assert recalibrated == map_probabilities(everything.model, values, other, labelled).recalibration
    assert recalibrated != map_probabilities(everything.model, values, relevant).recalibration


def test_further_chunks_are_not_learned() -> None:
    """Documents in pairs of chunks, named as a whole: the second chunk found is neither relevant nor irrelevant."""
    rng = np.random.default_rng(6)
    world = World(6)
    parents = np.repeat(np.arange(0, DOCUMENTS, 2), 2).astype(np.int32)
    targets = parents[rng.integers(0, DOCUMENTS, QUERIES)]
    queries = unit(world.documents[targets] + world.documents[targets + 1] + rng.standard_normal((QUERIES, DIMENSION)))
    labelled = [LabelledQuery("q", "?", {target: 1}, chunks={}) for target in targets.tolist()]
    judged = judge_queries(labelled, queries, world.index, K, parents)
    assert (judged.relevant.sum(axis=1) == 2).any()
    estimated = []
    for grades in (judged.grades, np.where(judged.labelled, judged.grades, 0)):
        item = dataclasses.replace(judged, grades=grades)
        result = estimate_relevance(item, queries, world.parts, world.documents, world.lengths)
        assert result is not None
        estimated.append((result.answerable.tobytes(), relevance_record(result, world.parts, item, UNITS, None, 0)))
    assert estimated[0] == estimated[1]
    assert sum(item.results for item in estimated[0][1].bins) == judged.labelled[world.parts.not_fitting].sum()
