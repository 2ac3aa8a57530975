"""The lexical share against its definition, written out, and the parts of an index of words."""

import math
import re
import sys
import time
import unicodedata
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taugate.errors import ReleaseError
from taugate.policy.policy import Policy
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import DocumentWords, LexicalIndex, share_of, split_sentences
from taugate.retrieval.index.words import (
    K1,
    B,
    WordRule,
    characters,
    hybrid_vectors,
    query_terms,
    spellings,
    terms,
    words,
)
from taugate.retrieval.query import score_parts
from taugate.retrieval.retriever import Retriever
from tests.document_words import document_words

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


WORDS = ["oil", "crisis", "OPEC", "began", "in", "1973", "Straße", "été", "the", "the", "price"]


def literal(query: str, documents: list[str]) -> tuple[list[float], list[float], float]:
    """Robertson and Zaragoza 2009, §3: Σ idf · tf / (k1·((1 − b) + b·dl/avdl) + tf), as a share of Σ idf."""
    split = [words(document) for document in documents]
    average = sum(map(len, split)) / len(split)
    idf = {}
    for term in {*words(query)}:
        having = sum(term in document for document in split)
        idf[term] = math.log(1 + (len(split) - having + 0.5) / (having + 0.5))
    total = sum(idf.values()) or 1.0
    scores, shares = [], []
    for document in split:
        saturation = K1 * (1 - B + B * len(document) / average)
        counts = {term: document.count(term) for term in idf}
        scores.append(sum(idf[t] * tf / (saturation + tf) for t, tf in counts.items()) / total)
        shares.append(sum(idf[t] for t, tf in counts.items() if tf) / total)
    sentences = [set(words(sentence)) for document in documents for sentence in re.split(r"[.!?]+\s+", document)]
    best = max(sum(value for term, value in idf.items() if term in sentence) for sentence in sentences)
    return scores, shares, best / total


texts = st.lists(st.sampled_from([*WORDS, "unseen", "!?", "oil.", "began."]), max_size=12).map(" ".join)
corpora = st.lists(texts, min_size=1, max_size=6).filter(lambda corpus: any(map(words, corpus)))


@given(texts, corpora)
def test_match_equals_formula(query: str, documents: list[str]) -> None:
    match = document_words(documents).match(query, np.arange(len(documents)))
    scores, shares, sentence = literal(query, documents)
    np.testing.assert_allclose(match.bm25, scores, rtol=1e-6)  # idf is float32
    np.testing.assert_allclose(match.idf, shares, rtol=1e-6)
    assert match.best_sentence == pytest.approx(sentence, rel=1e-6)


@given(texts, corpora, st.randoms())
def test_match_is_independent_of_other_documents(query: str, documents: list[str], random) -> None:
    order = random.sample(range(len(documents)), len(documents))
    indexed = document_words(documents)
    together = indexed.match(query, np.array(order))
    alone = [indexed.match(query, np.array([position])) for position in order]
    assert together.bm25.tolist() == [match.bm25[0] for match in alone]
    assert together.idf.tolist() == [match.idf[0] for match in alone]
    assert together.best_sentence == max(match.best_sentence for match in alone)


@pytest.mark.parametrize("documents", [[""], ["", "!!!"], ["oil"]])
@pytest.mark.parametrize("query", ["", "?", "price"])
def test_match_without_common_words_is_zero(documents: list[str], query: str) -> None:
    match = document_words(documents).match(query, np.arange(len(documents)))
    assert (match.bm25.sum(), match.idf.sum(), match.best_sentence) == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("It began. It ended! Why? 3.5 barrels", ["it began", "it ended", "why", "3 5 barrels"]),
        ("Är det så… Ja.\nNej", ["är det så", "ja", "nej"]),
        ("石油危机。价格！为什么？", ["石油危机", "价格", "为什么"]),
        ("यह है। वह है।", ["यह है", "वह है"]),
        ("... !!! \n\n", []),
    ],
)
def test_sentences_of_any_script(text: str, split: list[str]) -> None:
    assert [*split_sentences(text)] == [words(item) + characters(item) for item in split]


@pytest.mark.parametrize("text", ["." * 200_000, " " * 200_000, "! " * 100_000, "\n" * 200_000 + "a", "a" * 200_000])
def test_sentence_split_time_is_bounded(text: str) -> None:
    began = time.process_time()
    assert len([*split_sentences(text)]) <= 1
    assert time.process_time() - began < 20  # seconds; with every start tried to the end it would be minutes


def test_words_of_sentence_count_together() -> None:
    indexed = document_words(["Oil rose. A crisis began.", "The oil crisis began."])
    apart, together = indexed.match("oil crisis", np.array([0])), indexed.match("oil crisis", np.array([0, 1]))
    assert (apart.idf[0], apart.best_sentence) == (1, 0.5)
    assert together.best_sentence == 1


def test_only_texts_that_can_have_best_sentence_are_read() -> None:
    documents = ["the oil crisis began", "oil", "the price"]
    read: list[int] = []

    def text(position: int) -> str:
        read.append(position)
        return documents[position]

    indexed = DocumentWords(document_words(documents).index, text)
    assert indexed.match("oil crisis", np.array([2, 1, 0])).best_sentence == 1
    assert read == [0]
    assert indexed.match("oil crisis", np.array([2, 1, 0]), sentences=False).best_sentence == 0
    assert read == [0]


SPELLINGS = {
    "What does a Building-Permit cost, a PERMIT?": ["What", "does", "a", "Building", "Permit", "cost"],
    "ＦＡＸ fax Straße": ["ＦＡＸ", "Straße"],
    "kit\u00adchen": ["kitchen"],  # a soft hyphen is not shown
    "Foo™ 東京都 水": ["Foo", "東京", "京都", "水"],  # pairs of characters
    "m² Αθήνα": ["m", "2", "m2", "Αθήνα"],
    " \n": [],
}


@pytest.mark.parametrize(("text", "expected"), SPELLINGS.items())
def test_spellings_are_those_of_the_text(text: str, expected: list[str]) -> None:
    assert [*spellings(text).values()] == expected


def test_spellings_follow_the_rule() -> None:
    assert [*spellings("Foo™", rule=2).values()] == ["footm"]


@given(st.text(st.characters() | st.sampled_from("aB éß東ｶﾞ\u00ad\u200b\u0301\u3000™ﬁ"), max_size=30))
def test_every_term_of_any_text_has_one_spelling(text: str) -> None:
    assert {*spellings(text)} == {*terms(text).tolist()}


SPLIT = {
    "Oil, CRISIS of 1973!": ["oil", "crisis", "of", "1973"],
    "Beyoncé's x_y 3.14": ["beyoncé", "s", "x_y", "3", "14"],
    "Straße STRASSE ﬁn": ["strasse", "strasse", "fin"],
    "हिन्दी किताब": ["हिन्दी", "किताब"],  # vowel signs and the virama are marks
    "co\u00adoperate a\ufe0fb": ["cooperate", "ab"],  # invisible
    "می\u200cخواهم میخواهم": ["ميخواهم", "ميخواهم"],
    "a\u200bb": ["a", "b"],  # a space, though of no width
    "東京都 abc": ["abc", "東京", "京都"],
    "東": ["東"],
    "データ": ["デー", "ータ"],
    "ｶﾞｷﾞｸ": ["ガギ", "ギク"],
    "ที่นี่": ["ที่นี่"],  # two letters with their marks: one pair
    "ไทยland": ["land", "ไท", "ทย"],
    "ខ្មែរ": ["ខ្មែ", "មែរ"],
    "한국어 조사": ["한국어", "조사"],
    "\ud800oil": ["oil"],
    # Signs are no part of the word before them, and trademarks no words.
    "Kevlar™ Callout℠ Gasketᵃ": ["kevlar", "callout", "gasket", "a"],
    "1½ 10⁵": ["1", "1", "2", "10", "5"],
    "№7 TypeⅡ ①Step": ["no", "7", "type", "ii", "1", "step"],
    "rod² 5㎏": ["rod", "2", "5", "kg", "rod2", "5kg"],  # as both are written
    "CO₂ ⼈⼝": ["co2", "人口"],  # not signs
    # Marks that readers leave out, and letters and digits of other keyboards.
    "İstanbul istanbul Istanbul": ["istanbul", "istanbul", "istanbul"],
    "ISPARTA Isparta ısparta": ["isparta", "isparta", "isparta"],
    "ΑΘΗΝΑ Αθήνα Ἀθήνα ὁδός": ["αθηνα", "αθηνα", "αθηνα", "οδοσ"],
    "كِتَابُ كتـــاب أحمد": ["كتاب", "كتاب", "احمد"],
    "كلید مدرسہ على": ["كليد", "مدرسه", "علي"],
    "סֵפֶר": ["ספר"],
    "٢٠٢٤ २०२४ ۲۰۲۴ ๒๐๒๔ ２０２４": ["2024"] * 5,
    "мʼята м’ята м'ята": ["мята"] * 3,
    "ёлка за́мок їжак мой": ["елка", "замок", "їжак", "мой"],
    "canʼt can’t": ["can", "t", "can", "t", "cant"],
    "Hawaiʻi": ["hawai", "i", "hawaii"],
    "जाँच क़लम": ["जांच", "कलम"],
    "é å ü ñ": ["é", "å", "ü", "ñ"],  # letters of their own in some language
    "🙂 — …": [],
    "": [],
}


@pytest.mark.parametrize(("text", "expected"), SPLIT.items(), ids=[ascii(text) for text in SPLIT])
def test_words_of_script_follow_its_rules(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_fold_of_every_character_is_stable() -> None:
    """Folded again, decomposed, or in upper case."""
    for code in (*range(0x3100), *range(0x3100, sys.maxunicode + 1, 31)):
        character = chr(code)
        own = words(character)
        assert words("".join(own)) == own or len(own) > 1
        if not 0xD800 <= code < 0xE000:
            assert words(unicodedata.normalize("NFD", character)) == own
        assert words(character.upper()) == own


@given(st.text())
def test_words_of_any_text_do_not_depend_on_its_form(text: str) -> None:
    split = words(text)
    assert all(split)
    for form in ("NFC", "NFD"):
        assert words(unicodedata.normalize(form, text)) == split


@given(st.text())
def test_earlier_rules_fold_signs_as_letters(text: str) -> None:
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert words(unicodedata.normalize(form, text), 2) == words(text, 2)
    assert words("Kevlar™ ΑΘΉΝΑ ٢", 2) == ["kevlartm", "αθήνα", "٢"]


def test_ascii_text_has_same_words_by_rules_2_and_3() -> None:
    text = "".join(map(chr, range(128)))
    assert words(text, 2) == words(text, 3) == words(f"{text} é")[:-1]


def test_commas_of_thousands_do_not_divide_numbers() -> None:
    assert words("1,000 and 1,234,567 é") == ["1000", "and", "1234567", "é"]
    assert words("2019,2020 1,5 1,00 12345,678 a,123 1,000") == [
        *("2019", "2020", "1", "5", "1", "00", "12345", "678", "a", "123", "1000")
    ]
    assert words("1,000", 2) == ["1", "000"]


def test_characters_of_documents_are_found_by_one() -> None:
    """A query of one character finds it within a longer run; lengths and the shares of other queries stay."""
    texts = ["日本の水を飲む", "日本", "水 water", "water"]
    index, earlier = (LexicalIndex.of(texts, rule=rule) for rule in (3, 2))
    assert index.lengths.tolist() == earlier.lengths.tolist()
    positions = np.arange(4)
    assert (index.shares(query_terms("水"), positions) > 0).tolist() == [True, False, True, False]
    for query in ("日本", "水を飲む", "water", "日本 water"):
        assert (
            index.shares(query_terms(query), positions).tolist()
            == earlier.shares(query_terms(query), positions).tolist()
        )
    assert characters("水 abc") == characters("日本", 2) == []
    assert characters("日本 水") == ["日", "本"]


@given(st.text(st.characters(), max_size=30))
def test_terms_are_checksums_of_words(text: str) -> None:
    expected = [zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in words(text)]
    assert terms(text).tolist() == expected
    assert terms(text).dtype == np.uint32
    assert query_terms(text).tolist() == sorted({*expected})


@pytest.mark.parametrize(("rule", "share"), [(2, 0.0), (3, 0.5 / 1.9)])  # of a count of one
def test_release_searches_by_its_own_rule(rule: WordRule, share: float, tmp_path: Path) -> None:
    """A plain word finds "Kevlar™" by the third rule only, and each rule finds what it indexed."""
    LexicalIndex.of(["Kevlar™", "other"], rule=rule).save(tmp_path / "words")
    lexical = LexicalIndex.load(tmp_path / "words", 2)
    index, vector = HybridIndex(FlatIndex.build(np.eye(2, dtype=np.float32)), lexical, 0.5), np.eye(2, dtype=np.float32)
    retriever = Retriever(None, index, Policy("none", None, 2))  # type: ignore[arg-type]
    for query, expected in (("kevlar", share), ("Kevlar™", 0.5 / 1.9)):
        compared = retriever.with_words([query], vector[1:])
        assert index.score(compared, np.array([[0]]))[0, 0] == pytest.approx(expected)
        parts = score_parts(index, query, vector[1], np.array([0]), np.zeros(1, np.float32))
        assert parts.lexical is not None
        assert parts.lexical[0] == pytest.approx(expected)
        spelled = "kevlartm" if rule == 2 else query.rstrip("™")
        assert parts.matched_words == [[spelled] if expected else []]


def test_hybrid_vectors_keep_the_order_of_texts() -> None:
    vectors = np.eye(2, dtype=np.float32)
    queries = hybrid_vectors(vectors, ["b a b", ""])
    assert queries.dense is vectors
    assert [row.tolist() for row in queries.terms] == [query_terms("a b").tolist(), []]
    assert hybrid_vectors(queries, ["c", "d"]).dense is vectors
