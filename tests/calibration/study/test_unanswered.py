"""A calibration that refuses collects questions without an answer, and its relevance is low for them."""

from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.metrics.inputs import clusters
from taugate.calibration.relevance import removed_documents, seem_answered
from taugate.calibration.settings import CalibrationSettings
from taugate.calibration.study.corpus import question_parts
from taugate.data.beir import Dataset, read_dataset
from taugate.data.questions import off_topic_questions, off_topic_table
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.measure import DrawnQueries
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK
from tests.calibration.commands import small
from tests.calibration.report.studies import Studied, encode_with, studied

QUERIES = 200


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return small(tmp_path_factory.mktemp("made"), QUERIES, texts=100)


@pytest.fixture(scope="module")
def refusing(made: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Studied:
    return studied(*made, tmp_path_factory.mktemp("refusing") / "s", refuse="auto")


@pytest.fixture(scope="module")
def papers(made: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Studied:
    return studied(*made, tmp_path_factory.mktemp("papers") / "s")


def test_refusing_calibration_measures_relevance_on_a_mixture(refusing: Studied, papers: Studied) -> None:
    record, plain = refusing.found.manifest.relevance, papers.found.manifest.relevance
    assert record is not None
    assert plain is not None
    assert (record.unanswerable_share, plain.unanswerable_share) == (0.5, None)
    heldout = len(refusing.found.parts["heldout"].members)
    # Off-topic questions that measure, and the held-out queries without their documents.
    asked = off_topic_questions(query.text for query in refusing.found.search.dataset.answerable)
    assert record.unanswerable == sum(not question.chooses for question in asked) + heldout
    assert record.queries == plain.queries == heldout
    assert refusing.manifest().relevance == record


def test_refusing_calibration_lowers_relevance_of_removed_documents(
    refusing: Studied, papers: Studied, made: tuple[Path, Path]
) -> None:
    encoded = encode_with(made[1], refusing.found.search.dataset)
    top, rows = removed_documents(refusing.found.search.dataset, encoded, FlatIndex.build(encoded.documents), 5)
    found, plain = (
        study.found.estimated.relevance.estimate(encoded.answerable[rows], top)  # type: ignore[union-attr]
        for study in (refusing, papers)
    )
    assert found[:, 0].mean() < 0.8 * plain[:, 0].mean()
    assert refusing.found.scored.relevance is not None
    assert papers.found.scored.relevance is not None
    order, plain_order = (np.argsort(-study.found.scored.relevance, axis=1) for study in (refusing, papers))  # type: ignore[operator]
    assert (order[:, 0] == plain_order[:, 0]).all()


def test_removed_documents_are_not_among_the_results(made: tuple[Path, Path], tmp_path: Path) -> None:
    dataset = read_dataset(made[0], "test", tmp_path)
    encoded = encode_with(made[1], dataset)
    index = FlatIndex.build(encoded.documents)
    top, rows = removed_documents(dataset, encoded, index, 5)
    everything = index.search(encoded.answerable, len(dataset.documents))
    assert rows.tolist() == list(range(QUERIES))
    for row, query in enumerate(dataset.answerable):
        remaining = [at for at in everything.positions[row].tolist() if at not in query.relevant]
        assert top.positions[row].tolist() == remaining[:5]
    assert (np.diff(top.scores, axis=1) <= 0).all()
    assert removed_documents(dataset, encoded, index, 100)[1].size == 0  # 99 documents remain


def test_questions_that_score_high_and_share_words_seem_answered(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = read_dataset(made[0], "test", tmp_path)
    text = dataset.documents[3].text
    asked = [off_topic_table()[0]._replace(text=question) for question in (text, text, "Why does bread rise?")]
    monkeypatch.setattr(Dataset, "off_topic", asked)
    top = TopK(np.array([[0.9], [0.4], [0.9]], dtype=np.float32), np.array([[3], [3], [3]]))
    right = np.array([0.5, 0.6, 0.7], dtype=np.float32)
    assert seem_answered(dataset, top, right).tolist() == [True, False, False]
    assert not seem_answered(dataset, top, right[:0]).any()


def test_queries_that_measure_make_no_questions_to_learn_from(made: tuple[Path, Path], tmp_path: Path) -> None:
    units = SamplingUnits.from_clusters(clusters(read_dataset(made[0], "test", tmp_path).answerable))
    for holdout in (0.3, 0.0):
        drawn = DrawnQueries.draw(units, 100, CalibrationSettings(holdout=holdout))
        roles = QueryRoles.draw(drawn.parts["calibration"].members, units, 0)
        learns, measures = question_parts(drawn.parts, roles, QUERIES)
        assert not (learns & measures).any()
        assert (learns | measures).all() or not holdout
        expected = drawn.parts["heldout"].members if holdout else roles.not_fitting
        assert np.flatnonzero(measures).tolist() == expected.tolist()
