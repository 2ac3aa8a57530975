"""A search by cosine and words equals brute force, to the bit, whatever is searched and proposed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from taugate.errors import ReleaseError
from taugate.policy.arrays import HybridVectors
from taugate.release.names import Kind
from taugate.retrieval.index import hybrid
from taugate.retrieval.index.approximate import build, load_index, save
from taugate.retrieval.index.flat import FaissIndex
from taugate.retrieval.index.grouping import DocumentSearch
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex, share_of
from taugate.retrieval.index.top_k import DocumentSubset, TopK, first_of_each
from taugate.retrieval.index.words import hybrid_vectors, query_terms
from tests.retrieval.drawn import KINDS
from tests.retrieval.drawn_texts import text_vectors, zipf_texts

N, D, K, WEIGHT = 3000, 24, 5, 0.7
EXACT: tuple[Kind, ...] = ("flat", "flat-float16", "flat-int8")
# Around the limits at which the way to search changes: K + SPARE, N / 128, all fetched at once.
SIZES = (0, 1, K - 1, K, 21, 22, 23, 24, 53, 54, N // 20, N // 2, N - 1, N)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Words with the frequencies of a language; every tenth text three times, some empty."""
    drawn = zipf_texts(np.random.default_rng(1), N)
    for position in range(0, N - 5, 10):
        drawn[position + 1] = drawn[position + 5] = drawn[position]
    drawn[7::500] = [""] * len(drawn[7::500])
    return drawn


@pytest.fixture(scope="module", params=[kind for kind in KINDS if kind != "ivf-pq"])  # it needs more documents
def index(request: pytest.FixtureRequest, texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> HybridIndex:
    """As it is served: mapped from its files."""
    folder = tmp_path_factory.mktemp(request.param)
    vectors = text_vectors(texts, D)
    save(build(request.param, vectors), folder)
    LexicalIndex.of(texts).save(folder / "words")
    return HybridIndex(load_index(folder, request.param, D), LexicalIndex.load(folder / "words", N), WEIGHT)


@pytest.fixture(scope="module")
def queries(texts: list[str]) -> HybridVectors:
    """Parts of documents, rare and frequent words, copies, and queries without words of the corpus or any."""
    rng = np.random.default_rng(2)
    asked = [" ".join(rng.permutation(texts[row].split())[:6]) for row in rng.integers(0, N, 30)]
    asked += [texts[10], texts[20][:40], "w0", "w0 w1 w2", "unseen words", "?!", "w2900 unseen"]
    return hybrid_vectors(text_vectors(asked, D), asked)


def faiss_index(index: HybridIndex) -> FaissIndex:
    assert isinstance(index.vectors, FaissIndex)
    return index.vectors


def scores_of(index: HybridIndex, queries: HybridVectors) -> np.ndarray:
    """Fused scores of all documents, (n, N) float32, by the definition."""
    vectors = faiss_index(index).vectors[np.arange(len(index))].astype(float)
    cosines = (queries.dense.astype(float) @ vectors.T).astype(np.float32)
    sums = [index.lexical.term_scores(terms) for terms in queries.terms]
    return cosines + np.float32(index.weight) * np.stack([share_of(row.scores, row.total) for row in sums])


def check(found: TopK, scores: np.ndarray, k: int, mask: np.ndarray | None = None) -> None:
    mask = np.ones(scores.shape[1], dtype=np.bool_) if mask is None else mask
    order = np.argsort(np.where(mask, -scores, np.inf), axis=1, kind="stable")[:, : min(k, int(mask.sum()))]
    np.testing.assert_array_equal(found.positions, order)
    np.testing.assert_array_equal(found.scores, np.take_along_axis(scores, order, 1))
    assert (found.scores.dtype, found.positions.dtype) == (np.float32, np.int64)


def some(count: int, total: int = N) -> np.ndarray:
    mask = np.zeros(total, dtype=np.bool_)
    mask[np.random.default_rng(count).permutation(total)[:count]] = True
    return mask


@pytest.mark.parametrize("k", [1, K, 50, N, 2 * N])
def test_exact_search_equals_brute_force(index: HybridIndex, queries: HybridVectors, k: int) -> None:
    if faiss_index(index).kind in EXACT:
        check(index.search(queries, k), scores_of(index, queries), k)


@pytest.mark.parametrize("count", SIZES)
def test_subset_search_equals_brute_force(index: HybridIndex, queries: HybridVectors, count: int) -> None:
    """For approximate indexes, too: a subset is searched exactly whatever the kind."""
    check(index.search_within(queries, K, DocumentSubset(some(count))), scores_of(index, queries), K, some(count))


def test_result_is_independent_of_batch(index: HybridIndex, queries: HybridVectors) -> None:
    within = DocumentSubset(some(N // 2))
    for search in (index.search, lambda queries, k: index.search_within(queries, k, within)):
        together = search(queries, K)
        alone = [search(queries[row : row + 1], K) for row in range(len(queries))]
        np.testing.assert_array_equal(together.scores, np.concatenate([top.scores for top in alone]))
        np.testing.assert_array_equal(together.positions, np.concatenate([top.positions for top in alone]))


def test_score_and_its_parts_equal_search(index: HybridIndex, queries: HybridVectors) -> None:
    top = index.search(queries, K)
    np.testing.assert_array_equal(index.score(queries, top.positions), top.scores)
    cosines, weighted = index.parts(queries, top.positions)
    np.testing.assert_array_equal(cosines + weighted, top.scores)
    np.testing.assert_array_equal(cosines, index.vectors.score(queries.dense, top.positions))
    assert index.score(queries[:0], top.positions[:0]).shape == (0, K)


def test_approximate_search_misses_no_more_than_without_words(index: HybridIndex, queries: HybridVectors) -> None:
    scores, found = scores_of(index, queries), index.search(queries, K).scores[:, 0]
    cosines = scores_of(HybridIndex(index.vectors, index.lexical, 0.0), queries)
    missed = (found < scores.max(axis=1)).sum()
    assert missed <= (index.vectors.search(queries.dense, K).scores[:, 0] < cosines.max(axis=1)).sum()


@pytest.mark.parametrize("within", [None, N // 3], ids=["all", "subset"])
def test_grouped_search_equals_brute_force(index: HybridIndex, queries: HybridVectors, within: int | None) -> None:
    """Three passages a document on average, of uneven numbers."""
    if faiss_index(index).kind not in EXACT:
        return
    parents = np.sort(np.random.default_rng(3).integers(0, N // 3, N)).astype(np.int32)
    parents = np.unique(parents, return_inverse=True)[1].astype(np.int32)
    mask = np.ones(N, dtype=np.bool_) if within is None else some(within)
    search = DocumentSearch(index, parents, None if within is None else DocumentSubset(mask))
    scores = scores_of(index, queries)
    for rows, top in search.search(queries, K, K):
        for row, positions in zip(rows, top.positions, strict=True):
            order = np.argsort(np.where(mask, -scores[row], np.inf), kind="stable")[: mask.sum()]
            expected = order[first_of_each(parents, order)][:K]
            np.testing.assert_array_equal(positions[first_of_each(parents, positions)][:K], expected)


@pytest.mark.parametrize("limit", ["_MIN_NEAREST", "_ONE_IN", "MAX_CANDIDATES", "_MAX_POSTINGS"])
def test_small_limits_change_no_result(
    monkeypatch: pytest.MonkeyPatch, texts: list[str], queries: HybridVectors, limit: str
) -> None:
    """Lists are widened, and every document is scored in the end."""
    index = HybridIndex(build("flat", text_vectors(texts, D)), LexicalIndex.of(texts), WEIGHT)
    monkeypatch.setattr("taugate.retrieval.index.lexical._FEW_POSTINGS", 0)
    monkeypatch.setattr(hybrid, "_NEAREST_ONE_IN", N)
    for name, value in ((limit, 1), ("MAX_CANDIDATES", 64), ("_ONE_IN", N)):
        monkeypatch.setattr(hybrid, name, N if name == "_ONE_IN" else value)
    check(index.search(queries, K), scores_of(index, queries), K)


@pytest.mark.parametrize("weight", [1e-6, 0.3, 3.0, 1000.0])
def test_any_weight_is_exact(texts: list[str], queries: HybridVectors, weight: float) -> None:
    index = HybridIndex(build("flat", text_vectors(texts, D)), LexicalIndex.of(texts), weight)
    check(index.search(queries, K), scores_of(index, queries), K)


@pytest.mark.parametrize("kind", EXACT)
def test_copies_go_to_lower_position(kind: Kind) -> None:
    """More ties than candidates are ever fetched."""
    texts = ["oil price", "prime numbers"] * 2000
    index = HybridIndex(build(kind, text_vectors(texts, D)), LexicalIndex.of(texts), WEIGHT)
    asked = ["price", "numbers oil", "none of these"]
    queries = hybrid_vectors(text_vectors(asked, D), asked)
    check(index.search(queries, K), scores_of(index, queries), K)
    mask = some(1000, len(texts))
    check(index.search_within(queries, K, DocumentSubset(mask)), scores_of(index, queries), K, mask)


def test_corpus_of_one_document() -> None:
    index = HybridIndex(build("flat", text_vectors(["oil"], D)), LexicalIndex.of(["oil"]), WEIGHT)
    queries = hybrid_vectors(text_vectors(["oil", "", "other"], D), ["oil", "", "other"])
    check(index.search(queries, K), scores_of(index, queries), K)
    check(index.search_within(queries, K, DocumentSubset(np.array([False]))), scores_of(index, queries), K, some(0, 1))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from("abcdef"), max_size=6).map(" ".join), min_size=1, max_size=90),
    st.lists(st.sampled_from("abcdefg"), max_size=4).map(" ".join),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.integers(1, 8),
    st.integers(0, 2**32 - 1),
)
def test_drawn_corpus_equals_brute_force(texts: list[str], query: str, weight: float, k: int, seed: int) -> None:
    """Few words and few directions: many ties of either part."""
    rng = np.random.default_rng(seed)
    axes = np.eye(4, dtype=np.float32)
    index = HybridIndex(build("flat", axes[rng.integers(0, 4, len(texts))]), LexicalIndex.of(texts), weight)
    queries = hybrid_vectors(axes[rng.integers(0, 4, 1)], [query])
    mask = rng.random(len(texts)) < 0.7
    check(index.search(queries, k), scores_of(index, queries), k)
    check(index.search_within(queries, k, DocumentSubset(mask)), scores_of(index, queries), k, mask)


def test_queries_without_words_are_refused() -> None:
    index = HybridIndex(build("flat", text_vectors(["oil"], D)), LexicalIndex.of(["oil"]), WEIGHT)
    with pytest.raises(TypeError, match="needs the words of the queries"):
        index.search(text_vectors(["oil"], D), 1)
    with pytest.raises(ValueError, match="1 vectors and the words of 2 documents"):
        HybridIndex(index.vectors, LexicalIndex.of(["oil", "price"]), WEIGHT)


TEXTS = ["oil crisis in 1973", "oil price and oil embargo", "", "prime numbers in the price of numbers"]
Arrays = dict[str, np.ndarray]


def placed(name: str, place: int, value: float) -> Callable[[Arrays], None]:
    return lambda arrays: arrays[name].__setitem__(place, value)


def replaced(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({name: change(arrays[name])})


def wrapping(arrays: Arrays) -> None:
    """Offsets whose differences are all positive in 64 bits, as the sums overflow."""
    arrays.update(vocabulary=np.arange(3, dtype=np.uint32), idf=np.ones(3, dtype=np.float32))
    arrays["offsets"] = np.array([0, (1 << 63) - 1, (1 << 64) - 2, len(arrays["documents"])], dtype=np.uint64)


CHANGES: dict[str, Callable[[Arrays], None]] = {
    "no statistics": lambda arrays: arrays.__delitem__("statistics"),
    "another array": lambda arrays: arrays.update(other=np.zeros(1)),
    "offsets beyond the end": placed("offsets", -1, 1 << 31),
    "offsets before the end": placed("offsets", -1, 1),
    "offsets not from 0": placed("offsets", 0, 1),
    "offsets falling": placed("offsets", 2, 0),
    "offsets beyond within": placed("offsets", 2, (1 << 32) - 1),
    "offsets wrapping": wrapping,
    "offsets signed": replaced("offsets", lambda array: array.astype(np.int64)),
    "offsets of one byte": replaced("offsets", lambda array: array.astype(np.uint8)),
    "offsets empty": replaced("offsets", lambda array: array[:0]),
    "document outside": placed("documents", 0, len(TEXTS)),
    "documents falling": replaced("documents", lambda array: array[::-1].copy()),
    "documents of four bytes": replaced("documents", lambda array: array.astype(np.uint32)),
    "documents fewer": replaced("documents", lambda array: array[:-1]),
    "documents none": replaced("documents", lambda array: array[:0]),
    "count 0": placed("counts", 0, 0),
    "counts of two bytes": replaced("counts", lambda array: array.astype(np.uint16)),
    "counts as a table": replaced("counts", lambda array: array[None]),
    "terms falling": replaced("vocabulary", lambda array: array[::-1].copy()),
    "term twice": replaced("vocabulary", lambda array: np.repeat(array[:1], len(array))),
    "terms as one number": replaced("vocabulary", lambda array: np.array(array[0], dtype=np.uint32)),
    "idf NaN": placed("idf", 0, np.nan),
    "idf infinite": placed("idf", 0, np.inf),
    "idf 0": placed("idf", 0, 0),
    "idf negative": placed("idf", 0, -1),
    "idf above that of an unseen term": placed("idf", 0, 50),
    "idf as whole numbers": replaced("idf", lambda array: np.ones(len(array), dtype=np.uint32)),
    "lengths fewer": replaced("lengths", lambda array: array[:-1]),
    "lengths signed": replaced("lengths", lambda array: array.astype(np.int64)),
    "k1 NaN": placed("statistics", 0, np.nan),
    "k1 negative": placed("statistics", 0, -0.1),
    "k1 infinite": placed("statistics", 0, np.inf),
    "b above 1": placed("statistics", 1, 1.1),
    "b NaN": placed("statistics", 1, np.nan),
    "mean length 0": placed("statistics", 2, 0),
    "mean length that overflows": placed("statistics", 2, 1e-309),
    "unseen idf NaN": placed("statistics", 3, np.nan),
    "unseen idf infinite": placed("statistics", 3, np.inf),
    "unseen idf that overflows": placed("statistics", 3, 1.7e308),
    "rule of a later version": placed("statistics", 4, 4),
    "rule NaN": placed("statistics", 4, np.nan),
    "statistics in float32": replaced("statistics", lambda array: array.astype(np.float32)),
    "statistics of three": replaced("statistics", lambda array: array[:3]),
}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    LexicalIndex.of(TEXTS).save(tmp_path / "words")
    return tmp_path / "words"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_inconsistent_arrays_are_refused(stored: Path, change: Callable[[Arrays], None]) -> None:
    arrays = {name: array.copy() for name, array in load_file(stored).items()}
    change(arrays)
    save_file(arrays, stored)
    with pytest.raises(ReleaseError, match="words: does not hold the words of these documents; calibrate again"):
        LexicalIndex.load(stored, len(TEXTS))


def test_rewritten_arrays_are_accepted(stored: Path) -> None:
    """So that the refusals above are for the changes."""
    save_file(load_file(stored), stored)
    assert len(LexicalIndex.load(stored, len(TEXTS))) == len(TEXTS)


def test_any_changed_byte_is_refused_or_harmless(stored: Path) -> None:
    """Each byte of the file in turn; digests detect the changes that are harmless here."""
    content, refused = stored.read_bytes(), 0
    everywhere, query = np.arange(len(TEXTS)), query_terms("oil price in 1973 unseen")
    for place in range(len(content)):
        for value in (0, 255, content[place] ^ 1):
            stored.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])
            try:
                index = LexicalIndex.load(stored, len(TEXTS))
            except ReleaseError:
                refused += 1
                continue
            shares = index.shares(query, everywhere)
            assert ((shares >= 0) & (shares <= 1)).all()
            assert len(index.term_scores(query).scores) == len(TEXTS)
            assert (index.reaching(query, 0.1).positions < len(TEXTS)).all()
    assert refused > len(content)


def test_truncated_file_is_refused(stored: Path) -> None:
    content = stored.read_bytes()
    for length in range(len(content)):
        stored.write_bytes(content[:length])
        with pytest.raises(ReleaseError):
            LexicalIndex.load(stored, len(TEXTS))
