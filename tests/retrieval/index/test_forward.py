"""Terms in any language, and BM25 of a few documents against the written-out formula."""

import math
import re
import time
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.retrieval.index.forward import ForwardIndex, bm25_scores, sentences, terms

WORDS = ["oil", "crisis", "OPEC", "began", "in", "1973", "Straße", "été", "the", "the", "price"]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())


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
        saturation = 1.2 * (0.25 + 0.75 * len(document) / average)
        counts = {term: document.count(term) for term in idf}
        scores.append(sum(idf[t] * tf / (saturation + tf) for t, tf in counts.items()) / total)
        shares.append(sum(idf[t] for t, tf in counts.items() if tf) / total)
    each = [set(words(sentence)) for document in documents for sentence in re.split(r"[.!?]+\s+", document)]
    together = max(sum(value for term, value in idf.items() if term in sentence) for sentence in each)
    return scores, shares, together / total


texts = st.lists(st.sampled_from([*WORDS, "unseen", "!?", "oil.", "began."]), max_size=12).map(" ".join)


@given(texts, st.lists(texts, min_size=1, max_size=6).filter(lambda each: any(map(words, each))))
def test_match_equals_formula(query: str, documents: list[str]) -> None:
    found = ForwardIndex.of(documents).match(query, np.arange(len(documents)))
    scores, shares, together = literal(query, documents)
    np.testing.assert_allclose(found.bm25, scores, rtol=1e-12)
    np.testing.assert_allclose(found.idf, shares, rtol=1e-12)
    assert found.sentence == pytest.approx(together, rel=1e-12)


some = st.lists(texts, min_size=1, max_size=6).filter(lambda each: any(map(words, each)))


@given(st.lists(texts, min_size=1, max_size=3), some)
def test_bm25_scores_equal_formula(queries: list[str], documents: list[str]) -> None:
    split = [words(document) for document in documents]
    for query, found in zip(queries, bm25_scores(documents, queries), strict=True):
        having = [sum(term in document for document in split) for term in {*words(query)}]
        total = sum(math.log(1 + (len(split) - n + 0.5) / (n + 0.5)) for n in having)
        np.testing.assert_allclose(found, np.array(literal(query, documents)[0]) * total, rtol=1e-12)


@given(st.permutations(range(4)))
def test_document_score_is_independent_of_others(order: list[int]) -> None:
    index = ForwardIndex.of(["oil crisis", "the price of oil", "", "été 1973 1973"])
    found, alone = (
        index.match("oil price 1973", np.array(order)),
        [index.match("oil price 1973", np.array([position])).bm25[0] for position in order],
    )
    assert found.bm25.tolist() == alone


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Straße", "STRASSE"),
        ("ﬁre", "fire"),
        ("Été", "e\u0301te\u0301"),
        ("１９７３", "1973"),
        ("Ὀδυσσεύς", "ὈΔΥΣΣΕΎΣ"),
    ],
)
def test_terms_normalise_equal_texts(one: str, other: str) -> None:
    assert terms(one).tolist() == terms(other).tolist()


@given(st.text())
def test_any_text_has_terms(text: str) -> None:
    """Halves of surrogate pairs too, which a corpus in JSON can hold."""
    assert len(terms(text + "\ud800")) <= len(text) + 1
    ForwardIndex.of([text]).match(text, np.array([0]))


@pytest.mark.parametrize("documents", [[""], ["", "!!!"], ["oil"]])
@pytest.mark.parametrize("query", ["", "?", "price"])
def test_match_without_common_terms_is_zero(documents: list[str], query: str) -> None:
    found = ForwardIndex.of(documents).match(query, np.arange(len(documents)))
    assert (found.bm25.sum(), found.idf.sum(), found.sentence) == (0, 0, 0)
    assert len(ForwardIndex.of(documents).match(query, np.arange(0)).bm25) == 0


def test_term_count_is_capped_at_255() -> None:
    index = ForwardIndex.of(["oil " * 300, "price"])
    assert index.counts.tolist() == [255, 1]


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
    assert [item.tolist() for item in sentences(text)] == [terms(item).tolist() for item in split]


@pytest.mark.parametrize("text", ["." * 200_000, " " * 200_000, "! " * 100_000, "\n" * 200_000 + "a", "a" * 200_000])
def test_sentence_split_time_is_bounded(text: str) -> None:
    began = time.process_time()
    assert len(sentences(text)) <= 1
    assert time.process_time() - began < 2  # seconds; with every start tried to the end it would be minutes


def test_terms_of_sentence_count_together() -> None:
    index = ForwardIndex.of(["Oil rose. A crisis began.", "The oil crisis began."])
    apart, together = index.match("oil crisis", np.array([0])), index.match("oil crisis", np.array([0, 1]))
    assert (apart.idf[0], apart.sentence) == (1, 0.5)
    assert together.sentence == 1


INDEX = ForwardIndex.of(["oil crisis", "the price of oil. The year", "", "1973"])
FIELDS = ("vocabulary", "frequencies", "documents", "offsets", "codes", "counts")


def changed(**arrays: np.ndarray) -> ForwardIndex:
    return ForwardIndex(*(arrays.get(name, getattr(INDEX, name)) for name in FIELDS))


@pytest.mark.parametrize(
    "other",
    [
        changed(vocabulary=INDEX.vocabulary[::-1]),
        changed(vocabulary=INDEX.vocabulary.astype(np.int64)),
        changed(vocabulary=INDEX.vocabulary[:-1]),
        changed(frequencies=INDEX.frequencies[:-1]),
        changed(frequencies=INDEX.frequencies + np.uint32(4)),
        changed(documents=INDEX.documents[:-1]),
        changed(documents=INDEX.documents[::-1]),
        changed(documents=INDEX.documents + 1),
        changed(documents=np.array([0, 3, 1, 3, 4])),
        changed(offsets=INDEX.offsets[:-1]),
        changed(offsets=INDEX.offsets[::-1]),
        changed(offsets=INDEX.offsets + 1),
        changed(offsets=np.array([0, 6, 2, 8, 9])),
        changed(offsets=np.array([-1, 2, 6, 8, 9])),
        changed(offsets=INDEX.offsets.reshape(1, -1)),
        changed(offsets=np.array([0, 3, 6, 8, 9])),
        changed(codes=INDEX.codes[::-1]),
        changed(codes=INDEX.codes + np.uint32(7)),
        changed(codes=INDEX.codes[:-1]),
        changed(counts=INDEX.counts * np.uint8(0)),
        changed(counts=INDEX.counts.astype(np.float32)),
    ],
)
def test_modified_index_is_invalid(other: ForwardIndex) -> None:
    assert INDEX.is_valid(4)
    assert not other.is_valid(4)


def test_index_of_other_size_is_invalid() -> None:
    assert not INDEX.is_valid(3)
