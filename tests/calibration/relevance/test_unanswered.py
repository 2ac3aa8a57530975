"""Relevance with questions that no document answers comes true on a mixture of them and of answerable queries."""

from dataclasses import replace

import numpy as np
import pytest

from taugate.calibration.metrics.inputs import judge_queries
from taugate.calibration.relevance import estimate_relevance
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.relevance.fitting import (
    EstimatedRelevance,
    Unanswered,
    UnansweredQuestions,
    kind_shares,
    mixture_weights,
)
from taugate.evidence.relevance.record import (
    ReliabilitySums,
    expected_calibration_error,
    kept_relevance_record,
    relevance_record,
)
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK
from tests.vectors import unit

K, DOCUMENTS, QUERIES, DIMENSION = 5, 400, 900, 16
UNITS = SamplingUnits.from_clusters(np.arange(QUERIES))


class World:
    """Queries near one document each; the same without it; and questions in directions of no document."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        shared = np.zeros(DIMENSION)
        shared[:4] = 1.0
        self.documents = unit(rng.standard_normal((DOCUMENTS, DIMENSION)) + shared)
        targets = rng.integers(0, DOCUMENTS, QUERIES)
        self.queries = unit(self.documents[targets] + 0.25 * rng.standard_normal((QUERIES, DIMENSION)))
        self.lengths = rng.integers(20, 500, DOCUMENTS)
        index = FlatIndex.build(self.documents)
        labelled = [LabelledQuery(f"q{row}", "?", {target: 1}) for row, target in enumerate(targets.tolist())]
        self.judged = judge_queries(labelled, self.queries, index, K)
        self.roles = QueryRoles.draw(np.arange(QUERIES), UNITS, 0)
        wide = index.search(self.queries, K + 1)
        rest = np.argsort(wide.positions == targets[:, None], axis=1, kind="stable")[:, :K]
        removed = TopK(np.take_along_axis(wide.scores, rest, axis=1), np.take_along_axis(wide.positions, rest, axis=1))
        foreign = unit(rng.standard_normal((200, DIMENSION)) - shared)
        learns = np.zeros(QUERIES, dtype=np.bool_)
        learns[self.roles.not_fitting[::2]] = True
        rows = np.arange(200)
        self.foreign = UnansweredQuestions(index.search(foreign, K), foreign, QUERIES + rows)
        self.removed = UnansweredQuestions(removed, self.queries, np.arange(QUERIES))
        self.unanswered = Unanswered(
            [self.foreign.take(rows % 2 == 0), self.removed.take(learns)],
            [self.foreign.take(rows % 2 == 1), self.removed.take(~learns)],
        )

    def estimated(self, unanswered: Unanswered | None) -> EstimatedRelevance:
        result = estimate_relevance(self.judged, self.queries, self.roles, self.documents, self.lengths, unanswered)
        assert result is not None
        return result


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def estimated(world: World) -> EstimatedRelevance:
    return world.estimated(world.unanswered)


def error_on_mixture(world: World, estimated: EstimatedRelevance, fresh: World) -> float:
    """ECE on queries and questions of another draw, half of them unanswerable, with the documents of `world`."""
    index = FlatIndex.build(world.documents)
    rng = np.random.default_rng(9)
    targets = rng.integers(0, DOCUMENTS, 600)
    queries = unit(world.documents[targets] + 0.25 * rng.standard_normal((600, DIMENSION)))
    wide = index.search(queries, K + 1)
    is_answer = wide.positions == targets[:, None]
    foreign = fresh.foreign.vectors
    rest = np.argsort(is_answer, axis=1, kind="stable")[:, :K]
    removed = TopK(np.take_along_axis(wide.scores, rest, axis=1), np.take_along_axis(wide.positions, rest, axis=1))
    model = estimated.relevance
    parts = [
        model.estimate(queries, TopK(wide.scores[:, :K], wide.positions[:, :K])),
        model.estimate(foreign, index.search(foreign, K)),
        model.estimate(queries, removed),
    ]
    relevant = np.zeros((sum(map(len, parts)), K), dtype=np.bool_)
    relevant[:600] = is_answer[:, :K]
    weights = mixture_weights(600, [len(foreign), 600], [0.5, 0.5])
    sums = ReliabilitySums.by_cluster(np.concatenate(parts), relevant, np.arange(len(relevant)), weights=weights)
    return expected_calibration_error(sums)


def test_relevance_comes_true_on_a_half_unanswerable_mixture(world: World, estimated: EstimatedRelevance) -> None:
    fresh = World(1)
    assert error_on_mixture(world, estimated, fresh) < 0.02
    assert error_on_mixture(world, world.estimated(None), fresh) > 0.04


def test_off_topic_questions_get_almost_no_relevance(world: World, estimated: EstimatedRelevance) -> None:
    foreign = world.unanswered.measuring[0]
    found = estimated.relevance.estimate(foreign.vectors, foreign.top)
    before = world.estimated(None).relevance.estimate(foreign.vectors, foreign.top)
    assert found.mean() < before.mean() / 2


def test_order_within_a_query_is_that_of_the_model_without_questions(
    world: World, estimated: EstimatedRelevance
) -> None:
    before = world.estimated(None).fit.model
    after = estimated.relevance.model
    assert after.weights.tobytes() == before.weights.tobytes()
    alone = world.estimated(None).answerable
    steps, steps_alone = np.diff(estimated.answerable, axis=1), np.diff(alone, axis=1)
    assert (np.sign(steps) * np.sign(steps_alone) >= 0).all()


def test_certifying_queries_move_no_result_past_another(world: World, estimated: EstimatedRelevance) -> None:
    """Other labels of the certifying queries, and other questions made from them, change the recalibration only."""
    rng = np.random.default_rng(2)
    grades = world.judged.grades.copy()
    grades[world.roles.not_fitting] = rng.integers(0, 2, size=(len(world.roles.not_fitting), K))
    other = World()
    other.judged = replace(world.judged, grades=grades)
    other.unanswered = replace(world.unanswered, learning=[world.unanswered.learning[0], world.unanswered.measuring[1]])
    changed = other.estimated(other.unanswered)
    assert changed.fit.model.on_topic == estimated.fit.model.on_topic
    assert changed.fit.out_of_fold.tobytes() == estimated.fit.out_of_fold.tobytes()
    assert changed.relevance.model.recalibration != estimated.relevance.model.recalibration
    order = np.argsort(estimated.answerable, axis=None, kind="stable")
    assert (np.diff(changed.answerable.ravel()[order]) >= -1e-6).all()


def test_record_is_of_the_mixture(world: World, estimated: EstimatedRelevance) -> None:
    record = relevance_record(estimated, world.roles, world.judged, UNITS, None, 0)
    off_topic, removed = world.unanswered.measuring
    assert (record.unanswerable_share, record.unanswerable) == (0.5, len(off_topic) + len(removed))
    queries = len(world.roles.not_fitting)
    assert abs(sum(item.results for item in record.bins) - 2 * queries * K) <= len(record.bins)
    relevant = sum(item.results * item.relevant for item in record.bins)
    assert relevant == pytest.approx(world.judged.relevant[world.roles.not_fitting].sum(), rel=0.02)
    assert record.error_of_answerable is not None
    assert record.error_of_answerable.mean > record.expected_calibration_error
    heldout = np.arange(QUERIES)
    kept = kept_relevance_record(record, estimated, world.judged, UNITS, ("heldout", heldout), 0)
    assert (kept.queries, kept.unanswerable) == (QUERIES, record.unanswerable)


def test_record_without_questions_has_no_mixture(world: World) -> None:
    record = relevance_record(world.estimated(None), world.roles, world.judged, UNITS, None, 0)
    assert not {"unanswerable_share", "unanswerable", "error_of_answerable"} & {*record.model_dump()}


def test_mixture_weights_are_halves() -> None:
    weights = mixture_weights(6, [2, 4], [0.5, 0.5])
    assert weights.tolist() == [1.0] * 6 + [1.5] * 2 + [0.75] * 4
    assert mixture_weights(3, [], []).tolist() == [1.0] * 3


def _questions(count: int, *, own: bool) -> UnansweredQuestions:
    top = TopK(np.zeros((count, 1), dtype=np.float32), np.zeros((count, 1), dtype=np.int64))
    return UnansweredQuestions(top, np.zeros((count, 2), dtype=np.float32), np.arange(count), own)


@pytest.mark.parametrize(("own", "shares"), [(0, [0.5, 0.5]), (29, [1 / 3, 1 / 3, 1 / 3]), (30, [0.1, 0.1, 0.8])])
def test_labelled_unanswerable_queries_outweigh_made_ones(own: int, shares: list[float]) -> None:
    kinds = [_questions(50, own=False), _questions(40, own=False), *([_questions(own, own=True)] if own else [])]
    assert kind_shares(kinds) == pytest.approx(shares)
    assert kind_shares([_questions(40, own=True)]) == [1]
