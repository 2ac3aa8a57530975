"""Relevance from scores alone: features of a retriever's scores and of its components, and the stored model."""

from pathlib import Path

import numpy as np
import pytest

from taugate.errors import ReleaseError
from taugate.policy.policy import POLICIES, gap
from taugate.policy.relevance import BetaCalibration, Logistic
from taugate.policy.score_relevance import ScoreRelevance, feature_names, score_features

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
