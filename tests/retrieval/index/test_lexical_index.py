"""The lexical share against its definition, written out, and the parts of an index of words."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taugate.errors import ReleaseError
from taugate.retrieval.index.lexical import LexicalIndex, share_of
from taugate.retrieval.index.words import K1, B, query_terms, words

TEXTS = [
    "The oil crisis began in 1973, when OPEC proclaimed an oil embargo.",
    "The price of oil had risen from US$3 per barrel to nearly $12 by the end of the embargo.",
    "Prime numbers have exactly two divisors.",
    "",
    "東京都の人口 and the oil price of Tokyo",
]
SOME_TEXTS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12).map(" ".join), min_size=1, max_size=20)
QUERIES = st.lists(st.sampled_from([*"abcdefgh", "unseen", "other"]), max_size=12).map(" ".join)


def literal_shares(query: str, texts: list[str], k1: float, b: float) -> list[float]:
    """BM25 over the largest BM25 that any document could have for the query, term by term."""
    split = [Counter(words(text)) for text in texts]
    mean = sum(sum(counts.values()) for counts in split) / len(split) or 1.0
    idf = {}
    for word in {*words(query)}:
        having = sum(word in counts for counts in split)
        idf[word] = math.log(1 + (len(split) - having + 0.5) / (having + 0.5))
    shares = []
    for counts in split:
        length = sum(counts.values())
        bm25 = sum(
            weight * counts[word] * (k1 + 1) / (counts[word] + k1 * (1 - b + b * length / mean))
            for word, weight in idf.items()
            if counts[word]
        )
        shares.append(bm25 / (sum(idf.values()) * (k1 + 1)) if idf else 0.0)
    return shares


def everywhere(index: LexicalIndex, query: str) -> np.ndarray:
    return index.shares(query_terms(query), np.arange(len(index)))


@example(["a", ""], "a", 0.9, 1.0)
@example(["a"], "a", 0.0, 0.5)
@given(SOME_TEXTS, QUERIES, st.floats(0, 3), st.floats(0, 1))
def test_share_follows_its_definition(texts: list[str], query: str, k1: float, b: float) -> None:
    index = LexicalIndex.of(texts, k1, b)
    shares = everywhere(index, query)
    assert shares.dtype == np.float32
    np.testing.assert_allclose(shares, literal_shares(query, texts, k1, b), rtol=1e-6, atol=1e-7)
    assert (shares >= 0).all()
    assert (shares <= 1).all()


@given(SOME_TEXTS, QUERIES)
def test_shares_of_some_and_all_documents_are_equal_to_the_bit(texts: list[str], query: str) -> None:
    index, terms = LexicalIndex.of(texts), query_terms(query)
    sums = index.term_scores(terms)
    together = everywhere(index, query)
    np.testing.assert_array_equal(share_of(sums.scores, sums.total), together)
    alone = [index.shares(terms, np.array([position]))[0] for position in range(len(index))]
    np.testing.assert_array_equal(alone, together)
    for first in range(len(index)):
        np.testing.assert_array_equal(index.range_shares(terms, first, len(index)), together[first:])


@pytest.mark.parametrize("sorted_one_in", [0, 1 << 20], ids=["sorted", "counted"])
def test_candidates_include_all_that_reach_the_share(monkeypatch: pytest.MonkeyPatch, sorted_one_in: int) -> None:
    """By several numbers of terms that are read, and by either way to sum."""
    monkeypatch.setattr("taugate.retrieval.index.lexical._FEW_POSTINGS", 0)
    monkeypatch.setattr("taugate.retrieval.index.lexical._SORTED_ONE_IN", sorted_one_in)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("aaaaabbbbcccdd"), 6)) + " rare" * (row % 97 == 0) for row in range(2000)]
    index, terms = LexicalIndex.of(texts), query_terms("a b c d rare unseen")
    shares = index.shares(terms, np.arange(len(texts)))
    read = set()
    for share in (-1.0, 0.0, *np.quantile(shares, (0.1, 0.5, 0.9, 0.99)), float(shares.max()), 0.99, 1.5):
        found = index.reaching(terms, share)
        assert found.complete
        assert {*np.flatnonzero((shares >= share) & (shares > 0))} <= {*found.positions.tolist()}
        assert (np.diff(found.positions) > 0).all()
        assert (found.shares >= shares[found.positions] - 1e-6).all()
        read.add(len(found))
        limited = index.reaching(terms, share, max_postings=50)
        assert {*limited.positions.tolist()} <= {*range(0, 2000, 97)}
        assert limited.complete == (len(limited) == len(found))
    assert len(read) > 4
    top = index.reaching(terms, 0.0).most(10)
    assert (np.diff(top.shares) <= 0).all()
    assert len(top) == 10


def test_share_of_query_without_words_is_zero() -> None:
    assert (everywhere(LexicalIndex.of(TEXTS), "?!") == 0).all()
    assert not len(LexicalIndex.of(TEXTS).reaching(query_terms("?!"), -1.0))


def test_share_of_corpus_without_words_is_zero() -> None:
    index = LexicalIndex.of(["", "!"])
    assert everywhere(index, "oil").tolist() == [0, 0]
    assert index.matched(query_terms("oil"), np.array([0, 1])) == [set(), set()]
    assert not len(index.reaching(query_terms("oil"), 0.0))


def test_matched_terms_are_those_of_document() -> None:
    index, query = LexicalIndex.of(TEXTS), "oil price and barrels"
    matched = index.matched(query_terms(query), np.arange(len(TEXTS)))
    expected = [{*query_terms(query).tolist()} & {*query_terms(text).tolist()} for text in TEXTS]
    assert matched == expected


def test_counts_above_255_are_capped() -> None:
    index = LexicalIndex.of(["a " * 300 + "b", "a " * 255 + "c " * 46])
    first, second = everywhere(index, "a").tolist()
    assert first == second


@pytest.mark.parametrize(("documents", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_positions_take_the_smaller_type(documents: int, dtype: type, tmp_path: Path) -> None:
    index = LexicalIndex.of([*["a b"] * (documents - 1), "z a"])
    assert index.documents.dtype == dtype
    index.save(tmp_path / "words")
    loaded = LexicalIndex.load(tmp_path / "words", documents)
    last = loaded.shares(query_terms("z"), np.array([0, documents - 1]))
    assert last[0] == 0 < last[1]
    assert loaded.reaching(query_terms("z"), 0.1).positions.tolist() == [documents - 1]
    shorter = index.subset(np.arange(1, documents))
    assert shorter.documents.dtype == np.uint16
    assert shorter.is_valid(documents - 1)
    assert shorter.reaching(query_terms("z"), 0.1).positions.tolist() == [documents - 2]


def test_saved_index_is_equal_and_mapped(tmp_path: Path) -> None:
    index = LexicalIndex.of(TEXTS)
    index.save(tmp_path / "words")
    loaded = LexicalIndex.load(tmp_path / "words", len(TEXTS))
    assert loaded.statistics == index.statistics
    for name in ("vocabulary", "idf", "offsets", "documents", "counts", "lengths"):
        stored = getattr(loaded, name)
        np.testing.assert_array_equal(stored, getattr(index, name))
        assert not stored.flags.owndata
        assert not stored.flags.writeable
    assert str(tmp_path / "words") in Path("/proc/self/maps").read_text(encoding="utf-8")
    assert loaded.to_bytes() == index.to_bytes() == (tmp_path / "words").read_bytes()
    with pytest.raises(ReleaseError, match="does not hold the words of these documents"):
        LexicalIndex.load(tmp_path / "words", len(TEXTS) + 1)


@given(SOME_TEXTS, QUERIES, st.data())
def test_subset_keeps_shares_and_removes_words(texts: list[str], query: str, data: st.DataObject) -> None:
    index = LexicalIndex.of(texts)
    kept = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))))
    subset = index.subset(kept)
    assert {*subset.vocabulary.tolist()} == {
        term for position in kept for term in query_terms(texts[position]).tolist()
    }
    assert subset.statistics == index.statistics
    assert subset.is_valid(len(kept))
    remaining = " ".join(word for word in query.split() if any(word in texts[position].split() for position in kept))
    np.testing.assert_array_equal(everywhere(subset, remaining), everywhere(index, remaining)[kept])
    sums = subset.term_scores(query_terms(query))
    np.testing.assert_array_equal(share_of(sums.scores, sums.total), everywhere(subset, query))


def test_defaults_are_recorded() -> None:
    assert LexicalIndex.of(TEXTS).statistics[:2] == (K1, B)
