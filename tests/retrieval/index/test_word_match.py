"""The match of a query's words with documents and sentences, against the written-out formula."""

import math
import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.retrieval.index.lexical import DocumentWords, split_sentences
from taugate.retrieval.index.words import K1, B, characters, words
from tests.document_words import document_words

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
