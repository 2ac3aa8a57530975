"""The top-K is exact for any batch, ties and rounding of FAISS."""

import gc
from pathlib import Path

import numpy as np
import pytest

from taugate.errors import ReleaseError
from taugate.retrieval.index.approximate import load_index, save
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.vectors import rounding_bound
from tests.vectors import unit


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def brute_force(queries: np.ndarray, documents: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    scores = (queries.astype(float) @ documents.astype(float).T).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, 1), order


def check(documents: np.ndarray, queries: np.ndarray, k: int = 5) -> None:
    """The index finds what brute force does, to the last bit."""
    top = FlatIndex.build(documents).search(queries, k)
    scores, positions = brute_force(queries, documents, k)
    np.testing.assert_array_equal(top.positions, positions)
    np.testing.assert_array_equal(top.scores, scores)


@pytest.mark.parametrize("k", [1, 5, 20])
def test_flat_search_equals_brute_force(rng: np.random.Generator, k: int) -> None:
    check(unit(rng.standard_normal((3000, 48))), unit(rng.standard_normal((200, 48))), k)


def test_ties_go_to_lower_position(rng: np.random.Generator) -> None:
    documents = np.tile(unit(rng.standard_normal((10, 48))), (500, 1))  # every document 500 times
    check(documents, unit(rng.standard_normal((50, 48))))


def test_corpus_of_copies_is_fully_scored(rng: np.random.Generator) -> None:
    """More ties than candidates are ever fetched: memory stays bounded and the lowest positions win."""
    documents = np.repeat(unit(rng.standard_normal((3, 48))), 3000, axis=0)
    check(documents, unit(rng.standard_normal((40, 48))))


def test_near_ties_are_ordered_exactly(rng: np.random.Generator) -> None:
    """Documents closer to each other than float32 sums can tell apart: FAISS's own order would be chance."""
    base = unit(rng.standard_normal((1, 384)))
    check(unit(base + 1e-5 * rng.standard_normal((400, 384))), base)


def test_result_is_independent_of_batch(rng: np.random.Generator) -> None:
    documents, queries = unit(rng.standard_normal((5000, 384))), unit(rng.standard_normal((64, 384)))
    index = FlatIndex.build(documents)
    together = index.search(queries, 5)
    alone = [index.search(queries[row : row + 1], 5) for row in range(len(queries))]
    np.testing.assert_array_equal(together.scores, np.concatenate([top.scores for top in alone]))
    np.testing.assert_array_equal(together.positions, np.concatenate([top.positions for top in alone]))


def test_faiss_error_is_within_bound(rng: np.random.Generator) -> None:
    """The bound is what proves a top-K complete: it must hold for vectors that add up badly, too."""
    documents = unit(np.abs(rng.standard_normal((2000, 384))))  # no cancellation: the largest rounding errors
    exact = documents.astype(float) @ documents[:100].astype(float).T
    assert np.abs(documents @ documents[:100].T - exact).max() < rounding_bound(384)


def test_k_above_corpus_returns_all(rng: np.random.Generator) -> None:
    documents = unit(rng.standard_normal((3, 48)))
    assert FlatIndex.build(documents).search(documents[:1], 10).positions.shape == (1, 3)


def test_saved_index_is_mapped(rng: np.random.Generator, tmp_path: Path) -> None:
    documents, queries = unit(rng.standard_normal((1000, 48))), unit(rng.standard_normal((20, 48)))
    built = FlatIndex.build(documents)
    save(built, tmp_path)
    loaded = load_index(tmp_path, "flat", 48)
    np.testing.assert_array_equal(loaded.vectors, documents)
    np.testing.assert_array_equal(loaded.search(queries, 5).scores, built.search(queries, 5).scores)
    assert "index.faiss" in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_vectors_outlive_their_index(rng: np.random.Generator, tmp_path: Path) -> None:
    documents = unit(rng.standard_normal((20_000, 48)))
    save(FlatIndex.build(documents), tmp_path)
    vectors = [FlatIndex.build(documents).vectors, load_index(tmp_path, "flat", 48).vectors]
    gc.collect()
    for vector in vectors:
        np.testing.assert_array_equal(vector, documents)
        with pytest.raises(ValueError, match="read-only"):
            vector[0] = 0


def test_invalid_index_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index.faiss").write_bytes(b"IxFI" + bytes(100))
    with pytest.raises(ReleaseError, match="index.faiss"):
        load_index(tmp_path, "flat", 48)
