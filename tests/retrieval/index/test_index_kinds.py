"""Every kind of index scores its stored vectors the same in any batch; an invalid file is one clear error."""

import gc
from pathlib import Path

import faiss
import numpy as np
import pytest

from taugate.errors import ReleaseError
from taugate.release.names import INDEX, VECTORS, Kind
from taugate.retrieval.index.approximate import AnyIndex, ApproximateIndex, build, load_index, save, sizes, subset
from taugate.retrieval.index.flat import padded
from taugate.retrieval.index.kinds import ROUNDED_INT8
from tests.retrieval.drawn import KINDS, D, K, N, clustered
from tests.vectors import unit

EXACT = ("flat", "flat-int8", "hnsw", "ivf-flat", "ivf-pq")  # rank by the vectors themselves


@pytest.fixture(scope="module")
def documents() -> np.ndarray:
    """Clusters with some spread, and every hundredth document twice: ties."""
    vectors = clustered()
    vectors[1::100] = vectors[::100]
    return unit(vectors)


@pytest.fixture(scope="module")
def queries(documents: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(4)
    return unit(documents[rng.integers(0, N, 200)] + 0.2 * rng.standard_normal((200, D)))


@pytest.fixture(scope="module")
def built(documents: np.ndarray) -> dict[Kind, AnyIndex]:
    return {kind: build(kind, documents) for kind in KINDS}


@pytest.fixture(params=KINDS)
def index(request: pytest.FixtureRequest, built: dict[Kind, AnyIndex]) -> AnyIndex:
    return built[request.param]


def stored(index: AnyIndex) -> np.ndarray:
    return index.vectors[np.arange(len(index))]


def brute_force(queries: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scores = (queries.astype(float) @ vectors.astype(float).T).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    return np.take_along_axis(scores, order, 1), order


def recall(found: np.ndarray, exact: np.ndarray) -> float:
    return float((found[:, :, None] == exact[:, None, :]).any(axis=1).mean())


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.slow
def test_exact_kinds_store_vectors_exactly(built: dict[Kind, AnyIndex], documents: np.ndarray, kind: Kind) -> None:
    np.testing.assert_array_equal(stored(built[kind]), documents)


def test_float16_stores_vectors_nearly(built: dict[Kind, AnyIndex], documents: np.ndarray) -> None:
    """Half a unit of 11 bits."""
    assert 0 < np.abs(stored(built["flat-float16"]) - documents).max() < 5e-4


def test_stored_codes_equal_faiss(built: dict[Kind, AnyIndex]) -> None:
    index = built["flat-float16"]
    np.testing.assert_allclose(stored(index), index.faiss.reconstruct_n(0, N)[:, :D], rtol=0, atol=3e-7)


def test_rounded_int8_of_earlier_release_is_searched(
    documents: np.ndarray, queries: np.ndarray, tmp_path: Path
) -> None:
    """Its vectors are the rounded ones; a subset of it scores them as exact vectors."""
    rounded = faiss.IndexScalarQuantizer(32, ROUNDED_INT8, faiss.METRIC_INNER_PRODUCT)
    rounded.train(padded(documents, 32))
    rounded.add(padded(documents, 32))
    faiss.write_index(rounded, str(tmp_path / INDEX))
    index = load_index(tmp_path, "flat-int8", D)
    np.testing.assert_allclose(stored(index), rounded.reconstruct_n(0, N)[:, :D], rtol=0, atol=3e-7)
    assert 0 < np.abs(stored(index) - documents).max() < 4e-3  # half a 256th of a component's range, which is below 2
    scores, positions = brute_force(queries, stored(index))
    half = subset(index, np.arange(N // 2))
    np.testing.assert_array_equal(index.search(queries, K).positions, positions)
    np.testing.assert_array_equal(index.search(queries, K).scores, scores)
    np.testing.assert_array_equal(half.search(queries, K).scores, brute_force(queries, stored(index)[: N // 2])[0])


def test_float32_graph_of_earlier_release_is_searched(
    documents: np.ndarray, queries: np.ndarray, tmp_path: Path
) -> None:
    graph, some = faiss.IndexHNSWFlat(D, 16, faiss.METRIC_INNER_PRODUCT), documents[:1000]
    graph.add(some)
    graph.hnsw.efSearch = 256
    faiss.write_index(graph, str(tmp_path / INDEX))
    index = load_index(tmp_path, "hnsw", D)
    assert index.exact is None
    np.testing.assert_array_equal(index.vectors[np.arange(1000)], some)
    assert recall(index.search(queries, K).positions, brute_force(queries, some)[1]) > 0.95
    half = subset(index, np.arange(500))
    assert half.exact is not None
    np.testing.assert_array_equal(half.vectors[np.arange(500)], some[:500])


@pytest.mark.parametrize("kind", ["flat", "flat-float16", "flat-int8"])
def test_flat_kinds_search_exactly(built: dict[Kind, AnyIndex], queries: np.ndarray, kind: Kind) -> None:
    top = built[kind].search(queries, K)
    scores, positions = brute_force(queries, stored(built[kind]))
    np.testing.assert_array_equal(top.positions, positions)
    np.testing.assert_array_equal(top.scores, scores)


def test_results_are_ordered_by_stored_vectors(index: AnyIndex, queries: np.ndarray) -> None:
    top = index.search(queries, K)
    exact = np.einsum("nd,nkd->nk", queries.astype(float), index.vectors[top.positions].astype(float))
    np.testing.assert_array_equal(top.scores, exact.astype(np.float32))
    np.testing.assert_array_equal(top.scores, index.score(queries, top.positions))
    falls, ties = np.diff(top.scores) < 0, np.diff(top.scores) == 0
    assert (falls | (ties & (np.diff(top.positions) > 0))).all()
    assert all(len(set(row)) == K for row in top.positions.tolist())


def test_result_is_independent_of_batch(index: AnyIndex, queries: np.ndarray) -> None:
    together = index.search(queries, K)
    alone = [index.search(queries[row : row + 1], K) for row in range(len(queries))]
    np.testing.assert_array_equal(together.scores, np.concatenate([top.scores for top in alone]))
    np.testing.assert_array_equal(together.positions, np.concatenate([top.positions for top in alone]))


@pytest.mark.parametrize("kind", ["hnsw", "ivf-flat", "ivf-pq"])
@pytest.mark.slow
def test_larger_breadth_finds_more(documents: np.ndarray, queries: np.ndarray, kind: Kind) -> None:
    index, (_, exact) = build(kind, documents), brute_force(queries, documents)
    assert isinstance(index, ApproximateIndex)
    recalls = []
    for breadth in (1, 64, 256):
        index.breadth = breadth
        assert index.breadth == breadth
        recalls.append(recall(index.search(queries, K).positions, exact))
    assert recalls[0] < recalls[1] <= recalls[2]
    assert recalls[2] > 0.97


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hnsw", "ivf-flat", "ivf-pq"])
def test_too_few_proposals_score_everything(documents: np.ndarray, queries: np.ndarray, kind: Kind) -> None:
    """One list out of 250 has no 500 documents."""
    index = build(kind, documents)
    assert isinstance(index, ApproximateIndex)
    index.breadth = 1
    top = index.search(queries[:3], 500)
    assert top.positions.shape == (3, 500)
    assert (top.positions >= 0).all()
    assert np.isfinite(top.scores).all()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ivf-pq"])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_small_corpora_are_searched(documents: np.ndarray, queries: np.ndarray, kind: Kind, count: int) -> None:
    top = build(kind, documents[:count]).search(queries[:5], K)
    assert top.positions.shape == (5, min(K, count))
    assert sorted(top.positions[0].tolist()) == sorted(set(top.positions[0].tolist()))


@pytest.mark.slow
def test_equal_vectors_give_equal_bytes(documents: np.ndarray, index: AnyIndex) -> None:
    """With any number of threads: a graph is built by one."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        again = build(index.kind, documents)
    finally:
        faiss.omp_set_num_threads(threads)
    assert (
        faiss.serialize_index(again.faiss).tobytes()
        == faiss.serialize_index(build(index.kind, documents).faiss).tobytes()
    )


@pytest.mark.slow
def test_saved_index_is_mapped(index: AnyIndex, queries: np.ndarray, tmp_path: Path) -> None:
    if isinstance(index, ApproximateIndex):
        index.breadth = 7
    save(index, tmp_path)
    written = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes(index) == (written[INDEX], sum(written.values()))
    loaded = load_index(tmp_path, index.kind, D)
    if isinstance(loaded, ApproximateIndex):
        assert loaded.breadth == 7
    np.testing.assert_array_equal(loaded.search(queries, K).scores, index.search(queries, K).scores)
    np.testing.assert_array_equal(loaded.search(queries, K).positions, index.search(queries, K).positions)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert all(str(tmp_path / name) in maps for name in written)
    vectors = loaded.vectors
    del loaded
    gc.collect()
    np.testing.assert_array_equal(vectors[np.arange(N)], stored(index))


def test_index_of_other_kind_is_refused(index: AnyIndex, tmp_path: Path) -> None:
    save(index, tmp_path)
    for kind in KINDS:
        if kind != index.kind:
            with pytest.raises(ReleaseError, match=f"{INDEX}.*{kind}|{VECTORS}"):
                load_index(tmp_path, kind, D)


def test_index_of_other_dimension_is_refused(index: AnyIndex, tmp_path: Path) -> None:
    save(index, tmp_path)
    with pytest.raises(ReleaseError, match=f"dimension.*{D + 16}"):
        load_index(tmp_path, index.kind, D + 16)


@pytest.mark.parametrize("kind", ["flat-int8", "hnsw", "ivf-pq"])
def test_vectors_of_other_corpus_are_refused(
    built: dict[Kind, AnyIndex], documents: np.ndarray, kind: Kind, tmp_path: Path
) -> None:
    save(built[kind], tmp_path)
    (tmp_path / "fewer").mkdir()
    save(build("flat", documents[:-1]), tmp_path / "fewer")
    (tmp_path / "fewer" / INDEX).rename(tmp_path / VECTORS)
    with pytest.raises(ReleaseError, match=f"{N} documents.*{N - 1}"):
        load_index(tmp_path, kind, D)


@pytest.mark.parametrize("step", [0.0, -1.0, float("nan"), float("inf")])
def test_codes_with_invalid_step_are_refused(documents: np.ndarray, step: float, tmp_path: Path) -> None:
    index = build("flat-int8", documents[:100])
    index.faiss.sq.rangestat_arg = step
    save(index, tmp_path)
    with pytest.raises(ReleaseError, match="not a flat-int8"):
        load_index(tmp_path, "flat-int8", D)


def test_lists_without_map_are_refused(documents: np.ndarray, tmp_path: Path) -> None:
    index = build("ivf-flat", documents)
    index.faiss.set_direct_map_type(faiss.DirectMap.NoMap)
    save(index, tmp_path)
    with pytest.raises(ReleaseError, match="no map"):
        load_index(tmp_path, "ivf-flat", D)


def _crafted(name: str, documents: np.ndarray) -> faiss.Index:
    """Indexes of the right family whose parts are not those that `build` makes."""
    if name == "graph over quantised vectors":
        index = faiss.IndexHNSWSQ(D, faiss.ScalarQuantizer.QT_8bit, 8, faiss.METRIC_INNER_PRODUCT)
    elif name == "graph by distance":
        index = faiss.IndexHNSWFlat(D, 8, faiss.METRIC_L2)
    elif name == "lists by distance":
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(D), D, 4, faiss.METRIC_INNER_PRODUCT)
    elif name == "lists through a graph":
        index = faiss.IndexIVFFlat(
            faiss.IndexHNSWFlat(D, 8, faiss.METRIC_INNER_PRODUCT), D, 4, faiss.METRIC_INNER_PRODUCT
        )
    else:
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(D), D, 4, faiss.METRIC_INNER_PRODUCT)
    index.train(documents[:200])
    index.add(documents[:200])
    if name == "more lists than centroids":
        faiss.downcast_index(index.quantizer).reset()
    if isinstance(index, faiss.IndexIVFFlat):
        index.make_direct_map()
    return index


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("graph over quantised vectors", "hnsw"),
        ("graph by distance", "hnsw"),
        ("lists by distance", "ivf-flat"),
        ("lists through a graph", "ivf-flat"),
        ("more lists than centroids", "ivf-flat"),
    ],
)
def test_foreign_index_parts_are_refused(name: str, kind: Kind, documents: np.ndarray, tmp_path: Path) -> None:
    faiss.write_index(_crafted(name, documents), str(tmp_path / INDEX))
    with pytest.raises(ReleaseError, match=f"not a {kind}"):
        load_index(tmp_path, kind, D)


@pytest.mark.parametrize("kind", ["hnsw", "ivf-flat"])
def test_invalid_breadth_is_refused(documents: np.ndarray, kind: Kind, tmp_path: Path) -> None:
    index = build(kind, documents[:100])
    assert isinstance(index, ApproximateIndex)
    index.breadth = 0
    save(index, tmp_path)
    with pytest.raises(ReleaseError, match="no valid search breadth"):
        load_index(tmp_path, kind, D)


def test_quantised_codes_shrink_files(built: dict[Kind, AnyIndex]) -> None:
    """Of vectors padded to 32 dimensions."""
    whole = sizes(built["flat"])[0]
    assert sizes(built["flat-float16"])[0] / whole * D / 32 == pytest.approx(1 / 2, rel=0.01)
    for kind in ("flat-int8", "ivf-pq"):
        searched, all_files = sizes(built[kind])
        assert searched < whole * 32 / D / 3.9
        assert all_files == searched + whole


def test_full_disk_raises_os_error(built: dict[Kind, AnyIndex], tmp_path: Path) -> None:
    (tmp_path / INDEX).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        save(built["flat"], tmp_path)
