"""Splits texts into words, the terms of lexical scores, by rules that hold for every language."""

import unicodedata
import zlib
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import regex

from taugate.retrieval.vectors.queries import HybridVectors, QueryVectors, Terms, dense_of

# Scripts that are written without spaces between words: their words are unknown, so pairs of characters replace them.
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]"
_RUN = regex.compile(rf"(?:{_UNSPACED}\p{{M}}*+)++")
_CHARACTER = regex.compile(r".\p{M}*+")
# Letters, digits, marks and underscores.
_WORD = regex.compile(r"\w+")


def words(text: str) -> list[str]:
    """Split a text into words, in order.

    A word is a run of letters, digits, marks and underscores after NFKC and case folding (Unicode Standard Annex 15;
    The Unicode Standard, §3.13). Runs of scripts without spaces become their overlapping pairs of characters. There is
    no stemming and no stop word list because these depend on the language.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    if folded.isascii() or _RUN.search(folded) is None:
        return _WORD.findall(folded)
    pairs = [pair for run in _RUN.findall(folded) for pair in _pairs(run)]
    return _WORD.findall(_RUN.sub(" ", folded)) + pairs


def terms(text: str) -> Terms:
    """Return the terms of a text in order, (t,) uint32: the CRC-32 of its words.

    Among a million distinct words some 116 pairs, n²/2³³, share a number and are treated as equal.
    """
    numbers = [zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in words(text)]
    return np.array(numbers, dtype=np.uint32)


def query_terms(text: str) -> Terms:
    """Return the distinct terms of a query, (t,) uint32 ascending."""
    return np.unique(terms(text))


def hybrid_vectors(vectors: QueryVectors, texts: Iterable[str]) -> HybridVectors:
    """Add the words of n queries to their vectors, (n, d) float32."""
    return HybridVectors(dense_of(vectors), tuple(map(query_terms, texts)))


def _pairs(run: str) -> list[str]:
    """Return the overlapping pairs of a run's characters, or its only character."""
    characters = _CHARACTER.findall(run)
    return [first + second for first, second in pairwise(characters)] or characters
