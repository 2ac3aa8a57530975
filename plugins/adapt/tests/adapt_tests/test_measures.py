"""The rows of the papers' table are what calibration would say, and each measure notices what it is for."""

import numpy as np
import pytest

from taugate.calibration.acceptance.baseline import SearchTrial
from taugate.calibration.comparison.measures import OtherTexts, ParaphrasedQueries, general_set, power_law_record
from taugate.calibration.metrics.embeddings import PARAPHRASES, QUERIES
from taugate.data.labelled_queries import LabelledQuery
from taugate.policy.arrays import Float32
from taugate.release.encoder import Role
from taugate.release.measures import Distances, MeasuresRecord
from taugate_adapt.decision import ComparedEncoders, separation_record
from tests.adaptation_records import adaptation, measures
from tests.vectors import unit

DIMENSION = 24
QUERY_LIST = [LabelledQuery(f"q{at}", f"What is the use of number {at}?", {at: 1}) for at in range(80)]


def cloud(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, DIMENSION))


def encode(texts: list[str], role: Role) -> Float32:
    """A random vector for each text, the same every time."""
    seeds = [int.from_bytes(text.encode()[-8:], "big") for text in texts]
    assert role in {"query", "document"}
    return unit(np.stack([np.random.default_rng(seed).standard_normal(DIMENSION) for seed in seeds]))


def trial(noise: float) -> SearchTrial:
    documents = cloud(200, 0)
    return SearchTrial.build(QUERY_LIST, unit(documents[:80] + noise * cloud(80, 1)), unit(documents), 5)


@pytest.fixture(scope="module")
def measured() -> MeasuresRecord:
    comparison = ComparedEncoders(QUERY_LIST, {"base": trial(2.5), "whitening": trial(1.5)}, 5, 0)
    requested = ParaphrasedQueries.write(QUERY_LIST, 0)
    before = OtherTexts.encode(requested, encode)
    return comparison.measure("whitening", requested, before, before.through(lambda vectors: vectors))


def test_row_equals_papers_measures(measured: MeasuresRecord) -> None:
    """Word by word: thresholds paper §2.1 to 2.3, with the draws in the order of docs/calibration.md."""
    result, searched = measured.rows[0], trial(2.5)
    rng = np.random.default_rng([0, 5])
    rows, random = rng.integers(0, 80, size=(500, 100)), rng.integers(0, 200, size=80)
    scores = searched.vectors.astype(float) @ searched.documents.astype(float).T
    top = np.sort(scores, axis=1)[:, ::-1][:, :5]
    correct = scores[np.arange(80), np.arange(80)]
    hits = (correct[:, None] >= top[:, -1:] - 1e-12).ravel().astype(float)

    accuracies = [hits[row].mean() for row in rows]
    assert result.accuracy.mean == pytest.approx(np.mean(accuracies), abs=1e-9)
    assert result.accuracy.lower == pytest.approx(np.percentile(accuracies, 2.5), abs=1e-9)
    thetas = [np.percentile(top[row], 5) for row in rows]
    assert result.coe.mean == pytest.approx(np.mean([(correct > theta).mean() for theta in thetas]), abs=1e-6)
    drawn = scores[np.arange(80), random]
    assert result.roe.mean == pytest.approx(np.mean([(drawn > theta).mean() for theta in thetas]), abs=1e-6)

    lowest = [top[row, -1].min() for row in rows]
    kept = hits * (correct >= np.percentile(lowest, result.psi) - 1e-7)
    assert result.tau == pytest.approx(np.percentile(lowest, result.psi), abs=1e-6)
    assert np.mean([kept[row].mean() for row in rows]) >= result.accuracy.lower - 1e-9
    assert result.accuracy_at_tau.mean == pytest.approx(np.mean([kept[row].mean() for row in rows]), abs=1e-9)


def test_each_recipe_has_a_row(measured: MeasuresRecord) -> None:
    assert [row.name for row in measured.rows] == ["base", "whitening"]
    assert measured.rows[1].accuracy.mean > measured.rows[0].accuracy.mean + 0.1
    assert measured.row("adapter") is None


def test_unchanged_encoder_has_equal_measures(measured: MeasuresRecord) -> None:
    assert measured.familiarity.before == pytest.approx(measured.familiarity.after)
    assert (measured.familiarity.queries, measured.familiarity.paraphrases) == (QUERIES, PARAPHRASES)
    assert (measured.familiarity.source, measured.familiarity.writer) == ("rules", "English")
    assert measured.forgetting.ndcg.change.mean == 0
    assert measured.separation.moved_away == 0
    assert sum(measured.separation.before.counts) == 200
    assert measured.spectrum.before == measured.spectrum.after


def test_encoded_texts_keep_their_order() -> None:
    requested = ParaphrasedQueries.write(QUERY_LIST, 0)
    result, general = OtherTexts.encode(requested, encode), general_set()
    assert np.array_equal(result.questions, encode([query.text for query in general.queries], "query"))
    assert np.array_equal(result.passages, encode(list(general.passages), "document"))
    assert np.array_equal(result.queries[3], encode([requested.queries[3]], "query")[0])
    assert np.array_equal(result.paraphrases[3, 1], encode([requested.paraphrases[3][1]], "query")[0])
    turned = result.through(lambda vectors: -vectors)
    assert np.array_equal(turned.paraphrases, -result.paraphrases)
    assert turned.familiarity == pytest.approx(result.familiarity)


def test_moved_domain_increases_separation() -> None:
    general, towards = unit(cloud(50, 1)), np.eye(DIMENSION)[0]
    record = separation_record(
        (unit(cloud(120, 2)), general), (unit(cloud(120, 2) - 8 * towards), unit(cloud(50, 1) + 8 * towards))
    )
    assert record.moved_away == 1
    assert record.before.relative is not None
    assert record.after.relative is not None
    assert record.after.relative > record.before.relative
    assert Distances(mean=1, counts=[1], general=0).relative is None
    assert sum(record.after.counts) == 120


def test_few_directions_have_no_power_law() -> None:
    assert power_law_record(unit(cloud(6, 0)), 0) is None
    record = power_law_record(unit(cloud(300, 0) * np.arange(1, DIMENSION + 1) ** -0.8), 0)
    assert record is not None
    assert record.last == DIMENSION
    assert record.beta.lower < record.beta.mean < record.beta.upper
    assert 1.0 < record.whole < 2.5


def test_missing_measures_are_not_written() -> None:
    assert "measures" not in adaptation(None).model_dump()
    record = adaptation(measures())
    assert type(record).model_validate_json(record.model_dump_json()) == record
