"""Labels that are moved on purpose are found, by a model that did not learn from their queries."""

from dataclasses import replace

import numpy as np
import pytest

from taugate.calibration.metrics.inputs import judge_queries
from taugate.calibration.relevance import estimate_relevance
from taugate.calibration.report.questions import DoubtfulLabels, cross_fitted, doubtful_labels
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.ranking import JudgedQueries
from taugate.evidence.relevance.fitting import EstimatedRelevance
from taugate.retrieval.index.flat import FlatIndex
from tests.vectors import unit

K, QUERIES, DIMENSION = 5, 600, 24
ROLES = QueryRoles.draw(np.arange(QUERIES), SamplingUnits.from_clusters(np.arange(QUERIES)), 0)


class World:
    """Queries near their documents, of which one in twenty is labelled with another of its results."""

    def __init__(self, seed: int, moved: float = 0.05) -> None:
        rng = np.random.default_rng(seed)
        self.documents = unit(rng.standard_normal((QUERIES, DIMENSION)))
        self.vectors = unit(self.documents + 0.14 * rng.standard_normal((QUERIES, DIMENSION)))
        queries = [LabelledQuery(f"q{at}", f"query {at}", {at: 1}) for at in range(QUERIES)]
        self.judged = judge_queries(queries, self.vectors, FlatIndex.build(self.documents), K)
        before = self.judged.grades
        grades = before.copy()
        for row in rng.permutation(QUERIES)[: round(moved * QUERIES)].tolist():
            grades[row] = 0
            grades[row, rng.choice(np.flatnonzero(before[row] == 0))] = 1
        self.wrong = grades != before
        self.judged = replace(self.judged, grades=grades)

    def estimated(self, judged: JudgedQueries | None = None) -> EstimatedRelevance:
        lengths = np.full(QUERIES, 100)
        result = estimate_relevance(judged or self.judged, self.vectors, ROLES, self.documents, lengths)
        assert result is not None
        return result

    def doubtful(self, most: int = 10) -> DoubtfulLabels:
        return doubtful_labels(cross_fitted(self.estimated(), ROLES), self.judged, most)


@pytest.mark.parametrize("seed", range(3))
def test_moved_labels_are_detected(seed: int) -> None:
    """Both halves of a move: the label that was put, and the one that was taken away."""
    world = World(seed)
    result = world.doubtful()
    assert 0.01 < world.wrong.mean() < 0.03, "what a draw at random would find"
    for labels, relevant in ((result.irrelevant, True), (result.missing, False)):
        assert len(labels) == 10
        assert len({item.row for item in labels}) == 10, "one label of a query"
        assert sum(world.wrong[item.row, item.rank] for item in labels) >= 8
        assert all(world.judged.relevant[item.row, item.rank] == relevant for item in labels)
        for item in labels:
            assert item.rival is None or world.judged.relevant[item.row, item.rival] != relevant


def test_clean_labels_are_rarely_doubted() -> None:
    """What is left of doubt is less sure than where labels are wrong."""
    errors, clean = World(0).doubtful(1), World(0, moved=0.0).doubtful(1)
    assert clean.irrelevant == [] or clean.irrelevant[0].probability > errors.irrelevant[0].probability


def test_cross_fitting_excludes_own_query() -> None:
    """Another label of a query that fits leaves the probabilities of its own fold as they were."""
    world = World(0)
    row = int(ROLES.fit[3])
    grades = world.judged.grades.copy()
    grades[row] = np.roll(grades[row], 1)
    other = replace(world.judged, grades=grades)
    before, after = world.estimated(), world.estimated(other)
    same = ROLES.fit[3::5]  # its fold
    # The recalibration, three numbers, learned from the queries that do not fit, and these through the model.
    plain = [
        replace(
            item,
            relevance=replace(
                item.relevance,
                model=replace(item.relevance.model, recalibration=type(item.relevance.model.recalibration)()),
            ),
        )
        for item in (before, after)
    ]
    one, two = (cross_fitted(item, ROLES) for item in plain)
    assert before.fit.regularization == after.fit.regularization
    np.testing.assert_array_equal(one[same], two[same])
    assert not np.array_equal(one[ROLES.fit], two[ROLES.fit])
    np.testing.assert_allclose(one[ROLES.fit], before.fit.out_of_fold, atol=1e-6)


def test_uniform_labels_give_no_doubt() -> None:
    judged = World(0).judged
    probabilities = np.full(judged.grades.shape, 0.5)
    for grade in (0, 1):
        same = replace(judged, grades=np.full_like(judged.grades, grade))
        assert doubtful_labels(probabilities, same, 10) == DoubtfulLabels([], [])


def test_agreeing_model_doubts_nothing() -> None:
    judged = World(0).judged
    probabilities = np.where(judged.relevant, 0.9, 0.1)
    assert doubtful_labels(probabilities, judged, 10) == DoubtfulLabels([], [])
