"""Splits texts into words, the terms of lexical scores, by rules that hold for every language.

Unicode Standard Annex 29 also joins "can't" and "3.14", but then "Beyoncé's" is no longer found by "Beyoncé". On five
labelled sets accuracy@5 and NDCG@10 were equal to 0.001 either way (docs/benchmarks/hybrid.md), so words are the
simpler runs of letters.
"""

import re
import unicodedata
import zlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

import numpy as np
import regex

from taugate.retrieval.vectors.queries import HybridVectors, QueryVectors, Terms, dense_of

# How texts are split. An index stores its rule, because thresholds of scores by words hold for this rule only. Rule 1
# is that of releases before scores had a lexical part: runs of letters, digits and underscores in every script.
WordRule = Literal[1, 2]
RULE: WordRule = 2

# Scripts that are written without spaces between words: their words are unknown, so pairs of characters replace them.
# SA are the South East Asian ones (Unicode Standard Annex 14); the long vowel mark belongs to both kinds of kana.
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Line_Break=SA}]"
_RUN = regex.compile(rf"(?:{UNSPACED}\p{{M}}*+)++")
_CHARACTER = regex.compile(r".\p{M}*+")
# Letters, digits, marks and underscores. Unlike that of `re`, this \w has the vowel signs of Hindi and other scripts.
_WORD = regex.compile(r"\w+")
# Soft hyphens and other characters that are not shown, but not the space of zero width.
_INVISIBLE = regex.compile(r"[\p{Default_Ignorable_Code_Point}--\u200b]+", flags=regex.VERSION1)
_WORD_WITHOUT_MARKS = re.compile(r"\w+")


def words(text: str, rule: WordRule = RULE) -> list[str]:
    """Split a text into words, in order.

    A word is a run of letters, digits, marks and underscores after compatibility caseless folding, by which invisible
    characters are removed (Unicode Standard Annex 15; The Unicode Standard, §3.13, NFKC_Casefold). Runs of scripts
    without spaces become their overlapping pairs of characters, listed last. There is no stemming and no stop word list
    because these depend on the language.

    Args:
        text: Any text.
        rule: Rule of the index that the words are looked up in.
    """
    if rule == 1:
        return _WORD_WITHOUT_MARKS.findall(unicodedata.normalize("NFKC", text).casefold())
    if text.isascii():
        return _WORD.findall(text.lower())
    folded = _folded(_INVISIBLE.sub("", text))
    if _RUN.search(folded) is None:
        return _WORD.findall(folded)
    pairs = [pair for run in _RUN.findall(folded) for pair in _pairs(run)]
    return _WORD.findall(_RUN.sub(" ", folded)) + pairs


def terms(text: str, rule: WordRule = RULE) -> Terms:
    """Return the terms of a text in order, (t,) uint32: the CRC-32 of its words.

    Among a million distinct words some 116 pairs, n²/2³³, share a number and are treated as equal.
    """
    return np.array([term_of(word) for word in words(text, rule)], dtype=np.uint32)


def spellings(text: str) -> dict[int, str]:
    """Return every term of a text as the text first spells it, in order.

    Words that folding splits or joins, and pairs of characters, are spelled as in `words`.
    """
    spelled = dict[int, str]()
    for part in text.split():  # folding does not act across spaces
        folded, original = words(part), _WORD.findall(_INVISIBLE.sub("", part))
        alike = [words(word) for word in original] == [[word] for word in folded]
        for word, spelling in zip(folded, original if alike else folded, strict=True):
            spelled.setdefault(term_of(word), spelling)
    return spelled


def query_terms(text: str, rule: WordRule = RULE) -> Terms:
    """Return the distinct terms of a query, (t,) uint32 ascending."""
    return np.unique(terms(text, rule))


def hybrid_vectors(vectors: QueryVectors, texts: Iterable[str]) -> HybridVectors:
    """Add the words of n queries to their vectors, (n, d) float32."""
    return HybridVectors(dense_of(vectors), tuple(map(query_terms, texts)))


def term_of(word: str) -> int:
    """Return the term of a word; see `terms`."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def _folded(text: str) -> str:
    """Fold letters to one case and one form; folding a letter may leave a sequence that has to be composed again."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _pairs(run: str) -> list[str]:
    """Return the overlapping pairs of a run's characters, or its only character."""
    characters = _CHARACTER.findall(run)
    return [first + second for first, second in pairwise(characters)] or characters
