"""A search within a subset equals brute force over it, to the bit, for every kind of index."""

from pathlib import Path

import numpy as np
import pytest

from taugate.release.names import Kind
from taugate.retrieval.index.approximate import AnyIndex, build, load_index, save
from taugate.retrieval.index.flat import SPARE
from taugate.retrieval.index.top_k import DocumentSubset, TopK
from tests.retrieval.drawn import KINDS, D, K, N, clustered
from tests.vectors import unit

FEW = N // 128  # up to so many are scored one by one
SIZES = (0, 1, K - 1, K, K + SPARE, K + SPARE + 1, FEW, FEW + 1, N // 20, N // 2, N - 1, N)


@pytest.fixture(scope="module")
def documents() -> np.ndarray:
    """Clusters with some spread; every tenth document three times: ties."""
    vectors = clustered()
    copied = np.arange(0, N - 5, 10)
    vectors[copied + 1] = vectors[copied + 5] = vectors[copied]
    return unit(vectors)


@pytest.fixture(scope="module")
def queries(documents: np.ndarray) -> np.ndarray:
    """Some of them are documents that have copies."""
    rng = np.random.default_rng(4)
    near = documents[rng.integers(0, N, 20)] + 0.2 * rng.standard_normal((20, D))
    return unit(np.concatenate([near, documents[:200:20]]))


@pytest.fixture(scope="module", params=KINDS)
def index(request: pytest.FixtureRequest, documents: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> AnyIndex:
    """As it is served: mapped from its files."""
    folder = tmp_path_factory.mktemp(request.param)
    save(build(request.param, documents), folder)
    return load_index(folder, request.param, D)


def some(rng: np.random.Generator, count: int, total: int = N) -> np.ndarray:
    mask = np.zeros(total, dtype=np.bool_)
    mask[rng.permutation(total)[:count]] = True
    return mask


def check(found: TopK, index: AnyIndex, queries: np.ndarray, mask: np.ndarray, k: int) -> None:
    vectors = index.vectors[np.arange(len(index))].astype(float)
    scores = (queries.astype(float) @ vectors.T).astype(np.float32)
    order = np.argsort(np.where(mask, -scores, np.inf), axis=1, kind="stable")[:, : min(k, int(mask.sum()))]
    np.testing.assert_array_equal(found.positions, order)
    np.testing.assert_array_equal(found.scores, np.take_along_axis(scores, order, 1))
    assert (found.scores.dtype, found.positions.dtype) == (np.float32, np.int64)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.slow
def test_subset_search_equals_brute_force(index: AnyIndex, queries: np.ndarray, count: int) -> None:
    rng = np.random.default_rng(count)
    for _ in range(3):
        mask = some(rng, count)
        check(index.search_within(queries, K, DocumentSubset(mask)), index, queries, mask, K)


@pytest.mark.parametrize("k", [1, 3, 100, 2 * N])
def test_subset_search_for_any_k(index: AnyIndex, queries: np.ndarray, k: int) -> None:
    """More than match, than candidates are fetched, and than there are documents."""
    for count in (FEW, N // 3):
        mask = some(np.random.default_rng(k), count)
        check(index.search_within(queries[:5], k, DocumentSubset(mask)), index, queries[:5], mask, k)


def test_subset_of_blocks_and_last_document(index: AnyIndex, queries: np.ndarray) -> None:
    """A bit that is read at the wrong place shows: N is no multiple of 8 less one document."""
    for block in (slice(0, 200), slice(N - 201, N - 1), slice(N - 1, N), slice(1001, 1009)):
        mask = np.zeros(N, dtype=np.bool_)
        mask[block] = True
        check(index.search_within(queries, K, DocumentSubset(mask)), index, queries, mask, K)


def test_subset_result_is_independent_of_batch(index: AnyIndex, queries: np.ndarray) -> None:
    for count in (FEW, N // 4):
        within = DocumentSubset(some(np.random.default_rng(7), count))
        together = index.search_within(queries, K, within)
        alone = [index.search_within(queries[row : row + 1], K, within) for row in range(len(queries))]
        np.testing.assert_array_equal(together.scores, np.concatenate([top.scores for top in alone]))
        np.testing.assert_array_equal(together.positions, np.concatenate([top.positions for top in alone]))


@pytest.mark.parametrize("kind", ["flat", "flat-float16", "flat-int8", "hnsw", "ivf-flat"])
def test_copies_in_subset_go_to_lower_position(kind: Kind) -> None:
    """More ties than candidates are ever fetched, half of them outside."""
    rng = np.random.default_rng(5)
    documents = np.repeat(unit(rng.standard_normal((3, 48))), 3000, axis=0)
    index, queries = build(kind, documents), unit(rng.standard_normal((8, 48)))
    mask = some(rng, len(documents) // 2, len(documents))
    check(index.search_within(queries, 5, DocumentSubset(mask)), index, queries, mask, 5)


def test_near_ties_in_subset_are_ordered_exactly() -> None:
    """Closer to each other than float32 sums can tell apart."""
    rng = np.random.default_rng(6)
    base = unit(rng.standard_normal((1, 384)))
    documents = unit(base + 1e-5 * rng.standard_normal((2000, 384)))
    index, mask = build("flat", documents), some(rng, 900, 2000)
    check(index.search_within(base, 5, DocumentSubset(mask)), index, base, mask, 5)


def test_subset_of_small_corpus(documents: np.ndarray, queries: np.ndarray) -> None:
    for kind in ("flat", "flat-float16", "flat-int8", "hnsw", "ivf-flat"):
        index = build(kind, documents[:3])
        for mask in (np.array([False, True, False]), np.ones(3, dtype=np.bool_), np.zeros(3, dtype=np.bool_)):
            check(index.search_within(queries, K, DocumentSubset(mask)), index, queries, mask, K)


def test_subset_search_avoids_gpu_copy(documents: np.ndarray, queries: np.ndarray) -> None:
    """FAISS has no selectors there: whatever is asked of the copy would fail."""
    index = build("flat", documents)
    index.gpu = object()
    for count in (FEW, N // 3):
        mask = some(np.random.default_rng(8), count)
        check(index.search_within(queries, K, DocumentSubset(mask)), index, queries, mask, K)


def test_mapped_index_searches_subset(documents: np.ndarray, queries: np.ndarray, tmp_path: Path) -> None:
    """The selector works on a mapping."""
    save(build("hnsw", documents), tmp_path)
    index = load_index(tmp_path, "hnsw", D)
    mask = some(np.random.default_rng(9), N // 5)
    check(index.search_within(queries, K, DocumentSubset(mask)), index, queries, mask, K)
    assert str(tmp_path / "index.faiss") in Path("/proc/self/maps").read_text(encoding="utf-8")
