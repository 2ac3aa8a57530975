"""Words in many scripts, folded so that every spelling of a text gives the same ones."""

import sys
import unicodedata
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.retrieval.index.words import hybrid_vectors, query_terms, terms, words

WORDS = {
    "Oil, CRISIS of 1973!": ["oil", "crisis", "of", "1973"],
    "Beyoncé's x_y 3.14": ["beyoncé", "s", "x_y", "3", "14"],
    "Straße STRASSE ﬁn": ["strasse", "strasse", "fin"],
    "हिन्दी किताब": ["हिन्दी", "किताब"],  # vowel signs and the virama are marks
    "co\u00adoperate a\ufe0fb": ["cooperate", "ab"],  # invisible
    "می\u200cخواهم میخواهم": ["میخواهم", "میخواهم"],
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
    "🙂 — …": [],
    "": [],
}


@pytest.mark.parametrize(("text", "expected"), WORDS.items(), ids=[ascii(text) for text in WORDS])
def test_words_of_script_follow_its_rules(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_fold_of_every_character_is_stable() -> None:
    """Folded again, decomposed, or in upper case; only the dotless i has the upper case of another letter."""
    for code in (*range(0x3100), *range(0x3100, sys.maxunicode + 1, 31)):
        character = chr(code)
        own = words(character)
        assert words("".join(own)) == own or len(own) > 1
        if not 0xD800 <= code < 0xE000:
            assert words(unicodedata.normalize("NFD", character)) == own
        if character != "ı":
            assert words(character.upper()) == own


@given(st.text())
def test_words_of_any_text_do_not_depend_on_its_form(text: str) -> None:
    split = words(text)
    assert all(split)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert words(unicodedata.normalize(form, text)) == split


@given(st.text(st.characters(), max_size=30))
def test_terms_are_checksums_of_words(text: str) -> None:
    expected = [zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in words(text)]
    assert terms(text).tolist() == expected
    assert terms(text).dtype == np.uint32
    assert query_terms(text).tolist() == sorted({*expected})


def test_hybrid_vectors_keep_the_order_of_texts() -> None:
    vectors = np.eye(2, dtype=np.float32)
    queries = hybrid_vectors(vectors, ["b a b", ""])
    assert queries.dense is vectors
    assert [row.tolist() for row in queries.terms] == [query_terms("a b").tolist(), []]
    assert hybrid_vectors(queries, ["c", "d"]).dense is vectors
