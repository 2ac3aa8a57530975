"""Relevance equals a transcription with loops, for any batch and width of the list."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from taugate.errors import ReleaseError
from taugate.policy.arrays import mean_and_covariance
from taugate.policy.policy import POLICIES, gap
from taugate.policy.relevance import (
    FEATURES,
    Background,
    BetaCalibration,
    ComputedBackground,
    Logistic,
    OnTopic,
    ReadDocuments,
    Relevance,
)
from taugate.policy.score_relevance import ScoreRelevance, feature_names, score_features
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK

K = 5


def unit(rng: np.random.Generator, n: int, d: int = 12) -> np.ndarray:
    vectors = rng.normal(size=(n, d)) + 0.5
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def world() -> tuple[FlatIndex, np.ndarray, np.ndarray, np.ndarray, Relevance]:
    rng = np.random.default_rng(0)
    documents, asked, queries = unit(rng, 80), unit(rng, 30), unit(rng, 9)
    lengths = rng.integers(10, 500, size=80)
    size = len(FEATURES)
    curve = BetaCalibration(1.3, 0.7, -0.2)
    model = Logistic(rng.normal(size=size), rng.uniform(0.5, 2, size=size), rng.normal(size=size), 0.3, curve)
    background = Background.of(documents, asked, lengths)
    return FlatIndex.build(documents), asked, queries, lengths, Relevance(model, background, K)


def transcribed(world, query: np.ndarray, scores: np.ndarray, positions: np.ndarray) -> list[float]:
    """One query, one result at a time; every mean and deviation from the vectors themselves."""
    index, asked, _, lengths, relevance = world
    documents = np.asarray(index.vectors).astype(float)
    against_all = documents @ query.astype(float)
    s = [float(score) for score in scores]
    document_z, asked_z = [], []
    for score, position in zip(s, positions, strict=True):
        others, questions = documents @ documents[position], asked.astype(float) @ documents[position]
        document_z.append((score - others.mean()) / others.std())
        asked_z.append((score - questions.mean()) / questions.std())
    result = []
    for i, position in enumerate(positions):
        z, best_z = ((value - against_all.mean()) / against_all.std() for value in (s[i], s[0]))
        values = [
            s[i], s[i] / s[0] if s[0] > 0 else 0.0, s[i] - s[i + 1] if i + 1 < K else 0.0, np.log(i + 1), s[0],
            np.mean(s[:K]), np.std(s[:K]), s[0] - s[1], z, best_z, best_z - z, document_z[i],
            max(document_z[:K]) - document_z[i], asked_z[i], max(asked_z[:K]) - asked_z[i],
            np.log(1 + lengths[position]),
        ]  # fmt: skip
        model = relevance.model
        odds = model.intercept + sum(w * (v - c) / r for w, v, c, r in zip(model.weights, values, model.center, model.scale, strict=True))  # fmt: skip  # noqa: E501
        p, curve = 1 / (1 + np.exp(-odds)), model.recalibration
        result.append(1 / (1 + (1 - p) ** curve.b / p**curve.a / np.exp(curve.c)))
    return result


def test_estimate_equals_transcription(world) -> None:
    index, _, queries, _, relevance = world
    top = index.search(queries, K)
    found = relevance.estimate(queries, top)
    for row, query in enumerate(queries):
        expected = transcribed(world, query, top.scores[row], top.positions[row])
        assert found[row] == pytest.approx(expected, abs=2e-5)  # the background of a document is stored in float32


def test_estimate_is_independent_of_batch_and_width(world) -> None:
    index, _, queries, _, relevance = world
    wide = index.search(queries, 20)
    together = relevance.estimate(queries, wide)
    for row in range(len(queries)):
        one = slice(row, row + 1)
        alone = relevance.estimate(queries[one], TopK(wide.scores[one, :K], wide.positions[one, :K]))
        assert (alone == together[one, :K]).all()


def test_saved_model_is_read_back(world, tmp_path: Path) -> None:
    index, _, queries, _, relevance = world
    relevance.save(tmp_path / "r")
    again = Relevance.load(tmp_path / "r", index.dimension, len(index))
    top = index.search(queries, K)
    assert (again.estimate(queries, top) == relevance.estimate(queries, top)).all()


def test_computed_background_gives_same_probabilities(world, tmp_path: Path) -> None:
    index, asked, queries, lengths, relevance = world
    asked_for: list[list[int]] = []

    def read(positions: np.ndarray) -> ReadDocuments:
        asked_for.append(positions.tolist())
        return ReadDocuments(np.asarray(index.vectors)[positions], lengths[positions])

    computed = ComputedBackground.of(mean_and_covariance(np.asarray(index.vectors)), asked)
    replace(relevance, background=computed).save(tmp_path / "r")
    again = Relevance.load(tmp_path / "r", index.dimension, None)
    top = index.search(queries, K)
    expected = relevance.estimate(queries, top)
    np.testing.assert_array_max_ulp(again.reading(read).estimate(queries, top), expected, maxulp=4)
    assert asked_for == [np.unique(top.positions).tolist()]
    given = again.estimate(queries, top, results=read(top.positions))
    np.testing.assert_array_max_ulp(given, expected, maxulp=4)
    with pytest.raises(ValueError, match="a way to read them"):
        again.estimate(queries, top)
    with pytest.raises(ReleaseError, match="does not hold a relevance model"):
        Relevance.load(tmp_path / "r", index.dimension, len(index))
    assert relevance.reading(read).background is relevance.background


def test_old_file_without_recalibration_loads(world, tmp_path: Path) -> None:
    index, _, queries, _, relevance = world
    relevance.save(tmp_path / "r")
    arrays = load_file(tmp_path / "r")
    del arrays["recalibration"]
    save_file(arrays, tmp_path / "r")
    again = Relevance.load(tmp_path / "r", index.dimension, len(index))
    before = replace(relevance, model=replace(relevance.model, recalibration=BetaCalibration()))
    top = index.search(queries, K)
    assert (again.estimate(queries, top) == before.estimate(queries, top)).all()
    assert (again.estimate(queries, top) != relevance.estimate(queries, top)).any()


ON_TOPIC = OnTopic(-2.0, 1.5, 0.4)


def on_topic(relevance: Relevance) -> Relevance:
    return replace(relevance, model=replace(relevance.model, on_topic=ON_TOPIC))


def test_on_topic_factor_multiplies_the_probability_before_recalibration(world) -> None:
    index, _, queries, _, relevance = world
    top = index.search(queries, K)
    plain = replace(relevance, model=replace(relevance.model, recalibration=BetaCalibration()))
    documents = np.asarray(index.vectors).astype(float)
    curve = relevance.model.recalibration
    for row, query in enumerate(queries):
        against_all, best = documents @ query.astype(float), float(top.scores[row, 0])
        odds = ON_TOPIC.intercept + ON_TOPIC.best_score * best
        odds += ON_TOPIC.best_query_z * (best - against_all.mean()) / against_all.std()
        one = slice(row, row + 1)
        alone = TopK(top.scores[one], top.positions[one])
        p = plain.estimate(queries[one], alone)[0].astype(float) / (1 + np.exp(-odds))
        expected = 1 / (1 + (1 - p) ** curve.b / p**curve.a / np.exp(curve.c))
        found = on_topic(relevance).estimate(queries[one], alone)[0]
        assert found == pytest.approx(expected, abs=2e-5)


def test_on_topic_factor_of_a_certain_query_changes_nothing(world) -> None:
    index, _, queries, _, relevance = world
    top = index.search(queries, K)
    certain = replace(relevance, model=replace(relevance.model, on_topic=OnTopic(1000.0, 0.0, 0.0)))
    np.testing.assert_allclose(certain.estimate(queries, top), relevance.estimate(queries, top), rtol=1e-6)
    impossible = replace(relevance, model=replace(relevance.model, on_topic=OnTopic(-1000.0, 0.0, 0.0)))
    assert (impossible.estimate(queries, top) == 0).all()


def test_product_of_two_certainties_has_finite_log_odds() -> None:
    sure = OnTopic(800.0, 0.0, 0.0).times(np.array([800.0, -800.0]), np.zeros((2, len(FEATURES))))
    assert np.isfinite(sure).all()
    assert sure[0] > 600
    assert sure[1] == pytest.approx(-800)


def test_on_topic_factor_is_read_back(world, tmp_path: Path) -> None:
    index, _, queries, _, relevance = world
    on_topic(relevance).save(tmp_path / "r")
    again = Relevance.load(tmp_path / "r", index.dimension, len(index))
    assert again.model.on_topic == ON_TOPIC
    top = index.search(queries, K)
    assert (again.estimate(queries, top) == on_topic(relevance).estimate(queries, top)).all()
    relevance.save(tmp_path / "r")
    assert "on_topic" not in load_file(tmp_path / "r")


@pytest.mark.parametrize(
    "change", ["factor", "falling", "shape", "nan", "missing", "extra", "k", "type", "scale", "truncated"]
)
def test_invalid_model_file_is_refused(world, tmp_path: Path, change: str) -> None:
    index, *_, relevance = world
    path = tmp_path / "r"
    relevance.save(path)
    arrays = load_file(path)
    changes = {
        "shape": lambda: arrays.update(weights=np.ones(3)),
        "nan": lambda: arrays.update(weights=arrays["weights"] * np.nan),
        "missing": lambda: arrays.pop("mean"),
        "extra": lambda: arrays.update(more=np.ones(1)),
        "k": lambda: arrays.update(k=np.array([0])),
        "type": lambda: arrays.update(k=np.array([5.5])),
        "scale": lambda: arrays.update(scale=arrays["scale"] * 0),
        "factor": lambda: arrays.update(on_topic=np.ones(2)),
        "falling": lambda: arrays.update(recalibration=np.array([1.0, -0.1, 0.0])),
        "truncated": lambda: None,
    }
    changes[change]()
    save_file(arrays, path)
    if change == "truncated":
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ReleaseError, match="calibrate again"):
        Relevance.load(path, index.dimension, len(index))


SCORES = np.array([[0.9, 0.6, 0.3]], dtype=np.float32)
COMPONENTS = {"bm25": np.array([[7.0, np.nan, 9.0]], dtype=np.float32)}
FLOORS = {"bm25": 1.0}


def feature(name: str, scores: np.ndarray, components: dict[str, np.ndarray]) -> list[float]:
    values = score_features(scores, components, FLOORS, 3)
    return [round(float(value), 4) for value in values[0, :, feature_names(("bm25",)).index(name)]]


def model() -> ScoreRelevance:
    rng, size = np.random.default_rng(0), len(feature_names(("bm25",)))
    logistic = Logistic(
        rng.normal(size=size), np.ones(size), rng.normal(size=size), 0.5, BetaCalibration(1.2, 0.8, 0.1)
    )
    return ScoreRelevance(logistic, FLOORS, 3)


def test_gap_is_the_difference_from_the_best_score_and_ignores_shifts() -> None:
    assert gap(SCORES)[0].tolist() == pytest.approx([0.0, -0.3, -0.6])
    shifted = np.array([[-5.0, -5.5, -8.0], [95.0, 94.5, 92.0]], dtype=np.float32)
    np.testing.assert_array_equal(*POLICIES["gap"].decide(shifted, None))


def test_missing_component_counts_as_the_lowest_of_the_query() -> None:
    assert feature("bm25: score", SCORES, COMPONENTS) == [7, 7, 9]
    assert feature("bm25: missing", SCORES, COMPONENTS) == [0, 1, 0]
    assert feature("bm25: gap_to_best", SCORES, COMPONENTS) == [-2, -2, 0]
    assert feature("bm25: log_rank", SCORES, COMPONENTS) == [0.6931, 0.6931, 0]


def test_component_that_found_nothing_counts_as_its_floor() -> None:
    assert feature("bm25: score", SCORES, {"bm25": np.full((1, 3), np.nan, dtype=np.float32)}) == [1, 1, 1]


def test_results_beyond_k_do_not_change_the_relevance_of_the_first_k() -> None:
    longer = np.concatenate([SCORES, [[0.1]]], axis=1).astype(np.float32)
    components = {"bm25": np.concatenate([COMPONENTS["bm25"], [[99.0]]], axis=1).astype(np.float32)}
    np.testing.assert_array_equal(model().estimate(longer, components)[:, :3], model().estimate(SCORES, COMPONENTS))


def test_stored_model_estimates_the_same_to_the_bit(tmp_path: Path) -> None:
    model().save(tmp_path / "relevance.safetensors")
    loaded = ScoreRelevance.load(tmp_path / "relevance.safetensors", ("bm25",))
    np.testing.assert_array_equal(loaded.estimate(SCORES, COMPONENTS), model().estimate(SCORES, COMPONENTS))


def test_model_of_other_components_is_refused(tmp_path: Path) -> None:
    model().save(tmp_path / "relevance.safetensors")
    with pytest.raises(ReleaseError, match="does not hold a relevance model of these scores"):
        ScoreRelevance.load(tmp_path / "relevance.safetensors", ("bm25", "dense"))
