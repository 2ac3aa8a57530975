"""Splits texts into words, the terms of lexical scores, by rules that hold for every language.

Unicode Standard Annex 29 also joins "can't" and "3.14", but then "Beyoncé's" is no longer found by "Beyoncé". On five
labelled sets accuracy@5 and NDCG@10 were equal to 0.001 either way (benchmarks/results/hybrid.md), so words are the
simpler runs of letters.
"""

import re
import unicodedata
import zlib
from collections.abc import Iterable
from itertools import groupby, pairwise
from typing import Literal

import numpy as np
import regex

from taugate.policy.arrays import HybridVectors, QueryVectors, Terms, dense_of

# How texts are split. An index stores its rule, because thresholds of scores by words hold for this rule only. Rule 1
# is that of releases before scores had a lexical part: runs of letters, digits and underscores in every script. Rule 2
# took signs for letters of the word before them ("Kevlar™" was "kevlartm"), and all marks and forms of digits counted.
WordRule = Literal[1, 2, 3]
RULE: WordRule = 3

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
_ASCII_WORD = re.compile(r"\w+", re.ASCII)  # finds the same in ASCII, and is faster
_THOUSANDS = re.compile(r",(?<=\d,)(?<!\d{4},)(?=\d{3}(?!\d))", re.ASCII)  # the comma of 1,000
# Signs that compatibility folding would make letters or digits of the word before them, such as ² ½ ① № ㎏ Ⅱ ª, but not
# CO₂ or the radicals of Chinese characters; those of trademarks are not read aloud.
_SIGNS = regex.compile(r"([[\p{So}\p{No}\p{Nl}\p{dt=Super}]--[\p{Han}\p{dt=Sub}]]++)", flags=regex.VERSION1)
_TRADEMARK = regex.compile(r"[\p{So}&&\p{dt=Super}]", flags=regex.VERSION1)
# What readers leave out, in folded and decomposed text: the dot of İ; Greek accents; Cyrillic stress, dots of ё and
# apostrophes; Hebrew points; Arabic vowel signs, and the line that lengthens a word; the dot below Hindi letters.
_LEFT_OUT = regex.compile(
    r"[\p{M}'’ʼ\u0640](?:(?<=i\u0307|\p{Greek}\p{M}+|[аеиоуыэюяіє][\u0300\u0301]|е\u0308|\u0640|\u093c"
    r"|[\p{Block=Hebrew}\p{Block=Arabic}\p{Block=Arabic_Extended_A}\p{Block=Syriac}])"
    r"|(?<=\p{Cyrillic}['’ʼ])(?=\p{Cyrillic}))",
    flags=regex.VERSION1,
)
# Letters that capitals and keyboards confuse: ı; Arabic and Persian ی, ک and ه; two signs for a nasal vowel of Hindi.
# Apostrophes that are letters separate words, and are left out as well: "Hawaiʻi" is found by "Hawai'i" and "Hawaii".
_APOSTROPHE = regex.compile("[ʹʺʻʼʽʾʿꞌ]")
_ALIKE = dict(zip("ıىیکةہٱँʹʺʻʼʽʾʿꞌ", "iييكههاं’’’’’’’’", strict=True))
_OTHER_FORM = regex.compile(rf"[{''.join(_ALIKE)}]|[\p{{Nd}}--[0-9]]", flags=regex.VERSION1)


def words(text: str, rule: WordRule = RULE) -> list[str]:
    """Split a text into words, in order; `rule`: rule of the index that the words are looked up in."""
    # A word is a run of letters, digits, marks and underscores after compatibility caseless folding, by which invisible
    # characters are removed (Unicode Standard Annex 15; The Unicode Standard, §3.13, NFKC_Casefold). Signs are words by
    # themselves, all digits are 0 to 9, 1,000 is 1000, and marks that readers leave out do not count. Runs of scripts
    # without spaces become their overlapping pairs of characters, listed last. There is no stemming and no stop word
    # list because these depend on the language.
    if rule == 1:
        return _WORD_WITHOUT_MARKS.findall(unicodedata.normalize("NFKC", text).casefold())
    if rule == 3:
        text = _THOUSANDS.sub("", text)
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    folded = _folded(_INVISIBLE.sub("", text)) if rule == 2 else _plain(text)
    if _RUN.search(folded) is None:
        return _WORD.findall(folded)
    pairs = [pair for run in _RUN.findall(folded) for pair in _pairs(run)]
    return _WORD.findall(_RUN.sub(" ", folded)) + pairs


def characters(text: str, rule: WordRule = RULE) -> list[str]:
    """Return the characters of a text that `words` has in pairs only; in a document, they match words of one character.

    Queries and lengths of documents do without them, so that the shares of other words are as without them.
    """
    if rule < 3 or text.isascii() or _RUN.search(text) is None:
        return []
    runs = map(_CHARACTER.findall, _RUN.findall(_plain(text)))
    return [character for run in runs if len(run) > 1 for character in run]


def terms(text: str, rule: WordRule = RULE) -> Terms:
    """Return the terms of a text in order, (t,) uint32: the CRC-32 of its words."""
    # Among a million distinct words some 116 pairs, n²/2³³, share a number and are treated as equal.
    encoded = (word.encode("utf-8", "surrogatepass") for word in words(text, rule))
    return np.array([*map(zlib.crc32, encoded)], dtype=np.uint32)


def spellings(text: str, rule: WordRule = RULE) -> dict[int, str]:
    """Return every term of a text as the text first spells it, in order."""
    # Words that folding splits or joins, and pairs of characters, are spelled as in `words`.
    spelled = dict[int, str]()
    for part in text.split():  # folding does not act across spaces
        folded, original = words(part, rule), _WORD.findall(_INVISIBLE.sub("", part))
        alike = [words(word, rule) for word in original] == [[word] for word in folded]
        for word, spelling in zip(folded, original if alike else folded, strict=True):
            spelled.setdefault(term_of(word), spelling)
    return spelled


def query_terms(text: str, rule: WordRule = RULE) -> Terms:
    """Return the distinct terms of a query, (t,) uint32 ascending."""
    return np.unique(terms(text, rule))


def hybrid_vectors(vectors: QueryVectors, texts: Iterable[str], rule: WordRule = RULE) -> HybridVectors:
    """Add the words of n queries to their vectors, (n, d) float32."""
    return HybridVectors(dense_of(vectors), tuple(query_terms(text, rule) for text in texts))


def term_of(word: str) -> int:
    """Return the term of a word; see `terms`."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def _folded(text: str) -> str:
    """Fold letters to one case and one form; folding a letter may leave a sequence that has to be composed again."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _plain(text: str) -> str:
    """Fold a text by rule 3. Folding does not act across spaces, and most words of many languages are ASCII."""
    groups = ((is_ascii, " ".join(parts)) for is_ascii, parts in groupby(text.split(), str.isascii))
    return " ".join(part.lower() if is_ascii else _spread(part) for is_ascii, part in groups)


def _spread(text: str) -> str:
    """Fold a text, with spaces around its signs."""
    # A sign also stays with its word if one is letters and the other digits, so that "m²" has "m", "2" and "m2".
    visible = _INVISIBLE.sub("", text)
    pieces = [visible]
    if not unicodedata.is_normalized("NFKC", visible):
        pieces = _SIGNS.split(_TRADEMARK.sub(" ", unicodedata.normalize("NFC", visible)))
    pieces = [*map(_letters, pieces)]
    for piece, sign in zip(pieces[::2], pieces[1::2], strict=False):
        last, first = piece[-1:], sign[:1]
        if sign.isalnum() and ((last.islower() and first.isdigit()) or (last.isdigit() and first.islower())):
            pieces += [word + sign for word in _WORD.findall(piece)[-1:]]
    if _APOSTROPHE.search(visible):
        own = {*_WORD.findall(" ".join(pieces))}
        parts = (_APOSTROPHE.sub("", part) for part in visible.split() if _APOSTROPHE.search(part))
        pieces += [joined for joined in map(_letters, parts) if joined not in own]
    return " ".join(pieces)


def _letters(text: str) -> str:
    """Fold letters and digits to one form, without what readers leave out."""
    folded = _LEFT_OUT.sub("", unicodedata.normalize("NFKD", text).casefold())
    alike = _OTHER_FORM.sub(lambda form: _ALIKE.get(form[0]) or str(unicodedata.decimal(form[0], form[0])), folded)
    return unicodedata.normalize("NFKC", alike)


def _pairs(run: str) -> list[str]:
    """Return the overlapping pairs of a run's characters, or its only character."""
    characters = _CHARACTER.findall(run)
    return [first + second for first, second in pairwise(characters)] or characters
