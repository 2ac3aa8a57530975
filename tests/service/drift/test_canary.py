"""The canary: a changed encoder or index is noticed without traffic."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from taugate.errors import OtherReranker, RerankerUnavailable
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.reader import Release
from taugate.retrieval.retriever import Retriever
from taugate.service.drift.analysis import Canary


def with_index(release: Release, index: FlatIndex) -> Release:
    old = release.retriever
    return replace(release, retriever=Retriever(old.encoder, index, old.policy, old.relevance, old.projection))


def canary(release: Release) -> Canary:
    return Canary(release, release.retriever)


def test_canary_of_unchanged_release_passes(release: Release) -> None:
    unchanged = canary(release)
    result = unchanged.run()
    assert result.alike
    assert result.difference <= release.manifest.golden_tolerance
    assert result.accuracy == unchanged.accuracy_at_calibration
    assert 0.1 < result.accuracy <= 1


def test_canary_fails_on_reordered_documents(release: Release) -> None:
    """Every similarity is as in the record, in the same order, but of the wrong document."""
    vectors = np.roll(release.retriever.index.vectors[np.arange(503)], 7, axis=0)  # type: ignore[attr-defined]  # a FlatIndex here
    result = canary(with_index(release, FlatIndex.build(vectors))).run()
    assert result.difference <= release.manifest.golden_tolerance
    assert result.accuracy < canary(release).accuracy_at_calibration
    assert not result.alike


def test_canary_fails_on_changed_vectors(release: Release) -> None:
    vectors = release.retriever.index.vectors[np.arange(503)]  # type: ignore[attr-defined]  # a FlatIndex here
    moved = vectors + np.random.default_rng(0).normal(0, 0.01, vectors.shape).astype(np.float32)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    result = canary(with_index(release, FlatIndex.build(moved))).run()
    assert not result.alike
    assert result.difference > 10 * release.manifest.golden_tolerance


def test_canary_fails_on_nan_vectors(release: Release) -> None:
    vectors = np.full_like(release.retriever.index.vectors[np.arange(503)], np.nan)  # type: ignore[attr-defined]  # a FlatIndex here
    result = canary(with_index(release, FlatIndex.build(vectors))).run()
    assert (result.alike, result.difference) == (False, np.inf)


def test_canary_fails_on_missing_documents(release: Release) -> None:
    vectors = release.retriever.index.vectors[np.arange(3)]  # type: ignore[attr-defined]  # a FlatIndex here
    result = canary(with_index(release, FlatIndex.build(vectors))).run()
    assert (result.alike, result.difference) == (False, np.inf)


@pytest.mark.parametrize(("error", "alike"), [(RerankerUnavailable("down"), True), (OtherReranker("other"), False)])
def test_second_stage_that_is_down_says_nothing(release: Release, error: RerankerUnavailable, alike: bool) -> None:
    """Replies are the first stage's then, and another alert tells of it; other scores are an alarm."""
    paused: list[bool] = []

    def check(deadline: float) -> None:
        raise error

    second = SimpleNamespace(check=check, pause=lambda: paused.append(True))
    with_second = replace(release.retriever, second=second)  # type: ignore[arg-type]  # what the canary calls
    assert Canary(release, with_second).run().alike is alike
    assert paused == [True]
