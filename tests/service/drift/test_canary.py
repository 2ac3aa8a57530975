"""The canary: a changed encoder or index is noticed without traffic."""

from dataclasses import replace

import numpy as np

from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.release.reader import Release
from taugate.retrieval.retriever import Retriever
from taugate.service.drift.canary import Canary


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
