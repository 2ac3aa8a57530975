"""The top-K is exact for any batch, ties and rounding of FAISS."""

import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taugate.errors import InputError, ReleaseError
from taugate.policy.arrays import Float32
from taugate.release.names import INDEX_KINDS, Kind
from taugate.retrieval.index.approximate import AnyIndex, ApproximateIndex, build, load_index, save, subset
from taugate.retrieval.index.flat import MAX_CANDIDATES, SPARE, FlatIndex, Int8Codes, Propose, exact_top_k
from taugate.retrieval.index.top_k import DocumentSubset, TopK
from taugate.retrieval.vectors import pair_similarity, rounding_bound
from tests.retrieval.drawn import KINDS, D, K, clustered
from tests.retrieval.drawn import N as SIZE
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


N, WIDTH = 4000, 24


class Vectors:
    """What is scored."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def score(self, queries: Float32, positions: np.ndarray) -> Float32:
        return pair_similarity(queries, self.vectors, positions)

    def __len__(self) -> int:
        return len(self.vectors)


def drawn(rng: np.random.Generator, count: int) -> np.ndarray:
    vectors = rng.standard_normal((count, WIDTH))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("bound", [1e-6, 0.05, 0.2, 2.0])
@pytest.mark.parametrize("members", [None, np.arange(7, N, 3), np.arange(10)], ids=["all", "some", "few"])
def test_top_k_is_proven_or_scans_all(bound: float, members: np.ndarray | None) -> None:
    rng = np.random.default_rng(0)
    index, queries = Vectors(drawn(rng, N)), drawn(rng, 12)
    scores = (queries.astype(float) @ index.vectors.astype(float).T).astype(np.float32)
    allowed = np.arange(N) if members is None else members
    fetched: list[int] = []

    def propose(asked: Float32, fetch: int) -> tuple[np.ndarray, np.ndarray]:
        """The best by a score that is off, at random, by up to the bound."""
        fetched.append(fetch)
        exact = asked.astype(float) @ index.vectors[allowed].astype(float).T
        rough = exact + 0.99 * bound * rng.uniform(-1, 1, exact.shape)
        order = np.argsort(-rough, axis=1)[:, :fetch]
        return np.take_along_axis(rough, order[:, -1:], 1)[:, 0] + bound, allowed[order]

    for k in (1, 5, 50):
        top = exact_top_k(index, [propose], queries, k, members)
        order = allowed[np.argsort(-scores[:, allowed], axis=1, kind="stable")[:, :k]]
        np.testing.assert_array_equal(top.positions, order)
        np.testing.assert_array_equal(top.scores, np.take_along_axis(scores, order, 1))
    assert max(fetched) <= max(MAX_CANDIDATES, 50 + SPARE)
    assert (len(fetched) > 3) == (bound > 0.01 and len(allowed) > 10)


def test_next_proposer_proves_what_first_does_not() -> None:
    rng = np.random.default_rng(1)
    index, queries = Vectors(drawn(rng, N)), drawn(rng, 12)
    tried: list[str] = []

    def propose(name: str, bound: float) -> Propose:
        def best(some: Float32, fetch: int) -> tuple[np.ndarray, np.ndarray]:
            tried.append(name)
            exact = some.astype(float) @ index.vectors.T.astype(float)
            order = np.argsort(-exact, axis=1)[:, :fetch]
            return np.take_along_axis(exact, order[:, -1:], 1)[:, 0] + bound, order

        return best

    proposers = [propose("far", 2.0), propose("near", 1e-6), propose("unused", 1e-6)]
    top = exact_top_k(index, proposers, queries, 5)
    scores = (queries.astype(float) @ index.vectors.astype(float).T).astype(np.float32)
    np.testing.assert_array_equal(top.positions, np.argsort(-scores, axis=1, kind="stable")[:, :5])
    assert tried == ["far"] * 3 + ["near"]


COUNT, GONE = 2000, 7


@pytest.mark.parametrize("kind", KINDS)
def test_subset_scores_as_before(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INDEX_KINDS, "ivf-pq", replace(INDEX_KINDS["ivf-pq"], min_documents=COUNT - GONE))
    documents = unit(clustered())[:COUNT]
    rng = np.random.default_rng(5)
    before = build(kind, documents)
    if isinstance(before, ApproximateIndex):
        before.breadth = 40
    save(before, tmp_path)
    mapped = load_index(tmp_path, kind, D)
    kept = np.delete(np.arange(len(documents)), rng.choice(len(documents), GONE, replace=False))
    after = subset(mapped, kept)
    assert (len(after), after.dimension, after.kind) == (len(kept), D, kind)
    np.testing.assert_array_equal(after.vectors[np.arange(len(kept))], before.vectors[kept])
    if isinstance(after, ApproximateIndex):
        assert after.breadth == 40
    (tmp_path / "after").mkdir()
    save(after, tmp_path / "after")
    queries = unit(documents[:50] + 0.2 * rng.standard_normal((50, D)))
    top = load_index(tmp_path / "after", kind, D).search(queries, K)
    np.testing.assert_array_equal(top.scores, before.score(queries, kept[top.positions]))
    if not isinstance(after, ApproximateIndex):
        longer = before.search(queries, K + GONE)
        for found, positions in zip(top.positions, longer.positions, strict=True):
            np.testing.assert_array_equal(kept[found], positions[np.isin(positions, kept)][:K])

    if kind == "ivf-pq":
        with pytest.raises(InputError, match=f"{COUNT - GONE - 1} documents are too few for ivf-pq.*calibrate again"):
            subset(mapped, kept[1:])


CODED = 3000


@pytest.mark.parametrize("dimension", [3, 26, 384, 1100])  # products of the last exceed what float32 counts exactly
@pytest.mark.parametrize("shape", ["normal", "outliers", "zeros"])
def test_limit_is_not_below_any_other_similarity(dimension: int, shape: str) -> None:
    rng = np.random.default_rng(dimension)
    documents, queries = unit(rng.standard_normal((CODED, dimension))), unit(rng.standard_normal((50, dimension)))
    if shape == "outliers":  # one component takes nearly all of the codes
        documents[::7], queries[::3] = 0, 0
        documents[::7, 1] = queries[::3, 1] = -1
    elif shape == "zeros":
        documents[::2], queries[::2] = 0, 0
    exact = queries.astype(float) @ documents.T.astype(float)
    for count in (1, 20, 500):
        limits, proposed = Int8Codes.build(documents).propose(queries, count)
        others = exact.copy()
        np.put_along_axis(others, proposed, -np.inf, axis=1)
        assert (limits >= others.max(axis=1)).all()
        assert all(len(set(row)) == count for row in proposed.tolist())


def test_proposals_contain_nearest_documents() -> None:
    rng = np.random.default_rng(0)
    documents = unit(rng.standard_normal((CODED, 384)))
    queries = unit(documents[:100] + 0.05 * rng.standard_normal((100, 384)))
    limits, proposed = Int8Codes.build(documents).propose(queries, 30)
    assert (proposed == np.arange(100)[:, None]).any(axis=1).all()
    assert limits.max() < 0.5  # the similarity of a query and its document is above 0.6


def test_corpus_of_zeros_is_coded() -> None:
    limits, proposed = Int8Codes.build(np.zeros((5, 8), np.float32)).propose(np.ones((1, 8), np.float32), 3)
    assert len(set(proposed[0].tolist())) == 3
    assert limits[0] >= 0


FEW = SIZE // 128  # up to so many are scored one by one
SIZES = (0, 1, K - 1, K, K + SPARE, K + SPARE + 1, FEW, FEW + 1, SIZE // 20, SIZE // 2, SIZE - 1, SIZE)


@pytest.fixture(scope="module")
def documents() -> np.ndarray:
    """Clusters with some spread; every tenth document three times: ties."""
    vectors = clustered()
    copied = np.arange(0, SIZE - 5, 10)
    vectors[copied + 1] = vectors[copied + 5] = vectors[copied]
    return unit(vectors)


@pytest.fixture(scope="module")
def queries(documents: np.ndarray) -> np.ndarray:
    """Some of them are documents that have copies."""
    rng = np.random.default_rng(4)
    near = documents[rng.integers(0, SIZE, 20)] + 0.2 * rng.standard_normal((20, D))
    return unit(np.concatenate([near, documents[:200:20]]))


@pytest.fixture(scope="module", params=KINDS)
def index(request: pytest.FixtureRequest, documents: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> AnyIndex:
    """As it is served: mapped from its files."""
    folder = tmp_path_factory.mktemp(request.param)
    save(build(request.param, documents), folder)
    return load_index(folder, request.param, D)


def some(rng: np.random.Generator, count: int, total: int = SIZE) -> np.ndarray:
    mask = np.zeros(total, dtype=np.bool_)
    mask[rng.permutation(total)[:count]] = True
    return mask


def check_within(found: TopK, index: AnyIndex, queries: np.ndarray, mask: np.ndarray, k: int) -> None:
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
        check_within(index.search_within(queries, K, DocumentSubset(mask)), index, queries, mask, K)


@pytest.mark.parametrize("k", [1, 3, 100, 2 * SIZE])
def test_subset_search_for_any_k(index: AnyIndex, queries: np.ndarray, k: int) -> None:
    """More than match, than candidates are fetched, and than there are documents."""
    for count in (FEW, SIZE // 3):
        mask = some(np.random.default_rng(k), count)
        check_within(index.search_within(queries[:5], k, DocumentSubset(mask)), index, queries[:5], mask, k)


def test_subset_of_blocks_and_last_document(index: AnyIndex, queries: np.ndarray) -> None:
    """A bit that is read at the wrong place shows: SIZE is no multiple of 8 less one document."""
    for block in (slice(0, 200), slice(SIZE - 201, SIZE - 1), slice(SIZE - 1, SIZE), slice(1001, 1009)):
        mask = np.zeros(SIZE, dtype=np.bool_)
        mask[block] = True
        check_within(index.search_within(queries, K, DocumentSubset(mask)), index, queries, mask, K)


def test_subset_result_is_independent_of_batch(index: AnyIndex, queries: np.ndarray) -> None:
    for count in (FEW, SIZE // 4):
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
    check_within(index.search_within(queries, 5, DocumentSubset(mask)), index, queries, mask, 5)


def test_near_ties_in_subset_are_ordered_exactly() -> None:
    """Closer to each other than float32 sums can tell apart."""
    rng = np.random.default_rng(6)
    base = unit(rng.standard_normal((1, 384)))
    documents = unit(base + 1e-5 * rng.standard_normal((2000, 384)))
    index, mask = build("flat", documents), some(rng, 900, 2000)
    check_within(index.search_within(base, 5, DocumentSubset(mask)), index, base, mask, 5)


def test_subset_of_small_corpus(documents: np.ndarray, queries: np.ndarray) -> None:
    for kind in ("flat", "flat-float16", "flat-int8", "hnsw", "ivf-flat"):
        index = build(kind, documents[:3])
        for mask in (np.array([False, True, False]), np.ones(3, dtype=np.bool_), np.zeros(3, dtype=np.bool_)):
            check_within(index.search_within(queries, K, DocumentSubset(mask)), index, queries, mask, K)


def test_subset_search_avoids_gpu_copy(documents: np.ndarray, queries: np.ndarray) -> None:
    """FAISS has no selectors there: whatever is asked of the copy would fail."""
    index = build("flat", documents)
    index.gpu = object()
    for count in (FEW, SIZE // 3):
        mask = some(np.random.default_rng(8), count)
        check_within(index.search_within(queries, K, DocumentSubset(mask)), index, queries, mask, K)


def test_mapped_index_searches_subset(documents: np.ndarray, queries: np.ndarray, tmp_path: Path) -> None:
    """The selector works on a mapping."""
    save(build("hnsw", documents), tmp_path)
    index = load_index(tmp_path, "hnsw", D)
    mask = some(np.random.default_rng(9), SIZE // 5)
    check_within(index.search_within(queries, K, DocumentSubset(mask)), index, queries, mask, K)
    assert str(tmp_path / "index.faiss") in Path("/proc/self/maps").read_text(encoding="utf-8")
