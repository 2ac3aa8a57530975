"""Words in many scripts, folded so that every spelling of a text gives the same ones."""

import sys
import unicodedata
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.policy.policy import Policy
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.words import WordRule, characters, hybrid_vectors, query_terms, terms, words
from taugate.retrieval.query import score_parts
from taugate.retrieval.retriever import Retriever

WORDS = {
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


@pytest.mark.parametrize(("text", "expected"), WORDS.items(), ids=[ascii(text) for text in WORDS])
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
