"""Splits texts into words, the terms of lexical scores, and indexes the documents of each term of a corpus.

Unicode Standard Annex 29 also joins "can't" and "3.14", but then "Beyoncé's" is no longer found by "Beyoncé". On five
labelled sets accuracy@5 and NDCG@10 were equal to 0.001 either way (benchmarks/results/hybrid.md), so words are the
simpler runs of letters.
"""

import re
import unicodedata
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import regex
from numpy.typing import NDArray

from taugate.errors import ReleaseError
from taugate.policy.arrays import Float64, HybridVectors, QueryVectors, Terms, dense_of
from taugate.storage.tensors import map_tensors, tensor_bytes

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

Unsigned = NDArray[np.unsignedinteger[Any]]
Positions = NDArray[np.int64]

# Trotman, Puurula and Burgess, "Improvements to BM25 and Language Models Examined", ADCS 2014: the best on average.
# They were better than 1.2 and 0.75 on two of three data sets here.
K1, B = 0.9, 0.4
MAX_COUNTED = 255  # cap of a term's count in a document; further occurrences hardly add to its weight
# Largest weight of a term in a release: ln(1 + 2N + 1) of more documents than can be numbered.
_MAX_IDF = 64.0
_ARRAYS = ("vocabulary", "idf", "offsets", "documents", "counts", "lengths")


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


class Statistics(NamedTuple):
    """The statistics of a corpus that a share depends on, besides the weights of its terms."""

    k1: float  # saturation of a term's count
    b: float  # share of the length normalisation, 0…1
    mean_length: float  # mean number of words in a document
    unseen_idf: float  # weight of a term that no document has
    rule: WordRule = RULE


@dataclass(frozen=True, eq=False)
class Postings:
    """The documents of each term, for N documents with V distinct terms and P pairs of a term and a document."""

    vocabulary: Terms  # (V,) uint32 ascending terms
    # (V,) float32 weights of the terms; float64 in releases before scores had a lexical part
    idf: NDArray[np.floating[Any]]
    offsets: Unsigned  # (V + 1,) uint32 or uint64 start of every term's documents, then P
    documents: Unsigned  # (P,) uint16 or uint32 positions of the documents, ascending for each term
    counts: NDArray[np.uint8]  # (P,) uint8 counts of the term in the document
    lengths: NDArray[np.uint32]  # (N,) uint32 numbers of words in the documents, without those of `words.characters`
    statistics: Statistics = field(repr=False)

    @classmethod
    def of(cls, texts: Iterable[str], k1: float = K1, b: float = B, rule: WordRule = RULE) -> Self:
        """Index texts, given in the order of the documents' positions.

        Args:
            texts: Texts of the N documents, N ≥ 1.
            k1: Saturation of a term's count, at least 0.
            b: Share of the length normalisation, 0…1.
        """
        distinct, counts, sizes, lengths = [], [], [], []
        for text in texts:
            text_terms = terms(text, rule)
            own_characters = np.array([*map(term_of, characters(text, rule))], dtype=np.uint32)
            own_terms, own_counts = np.unique(np.append(text_terms, own_characters), return_counts=True)
            distinct.append(own_terms)
            counts.append(np.minimum(own_counts, MAX_COUNTED).astype(np.uint8))
            sizes.append(len(own_terms))
            lengths.append(len(text_terms))
        all_terms = np.concatenate(distinct)
        owners = np.repeat(np.arange(len(sizes), dtype=position_type(len(sizes))), sizes)
        order = np.argsort(all_terms, kind="stable")
        all_terms = all_terms[order]
        starts = np.flatnonzero(np.concatenate([[True], all_terms[1:] != all_terms[:-1]])[: len(all_terms)])
        frequencies = np.diff(starts, append=len(all_terms))
        weights = idf(np.append(frequencies, 0), len(sizes)).astype(np.float32)
        statistics = Statistics(k1, b, sum(lengths) / len(lengths) or 1.0, float(weights[-1]), rule)
        return cls(
            all_terms[starts],
            weights[:-1],
            offsets_of(frequencies),
            np.asarray(owners[order], dtype=owners.dtype),
            np.concatenate(counts)[order],
            np.array(lengths, dtype=np.uint32),
            statistics,
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def of_other_texts(self, texts: Iterable[str]) -> Self:
        """Index other texts with the same k1, b and rule of splitting; see `of`."""
        return type(self).of(texts, self.statistics.k1, self.statistics.b, self.statistics.rule)

    @cached_property
    def saturation(self) -> Float64:
        """Count at which a term weighs half of its idf, k1·((1 − b) + b·dl/avdl), by document, (N,)."""
        k1, b, mean_length, *_ = self.statistics
        return k1 * ((1 - b) + b * self.lengths.astype(np.float64) / mean_length)

    def subset(self, kept: Positions) -> Self:
        """Return the index of the documents at some ascending positions, (M,) int64, with the same statistics.

        Terms that no kept document has are removed and count as unseen from then on, with a larger weight. The shares
        of queries without such terms stay equal to the bit.
        """
        renumbered = np.full(len(self), -1, dtype=np.int64)
        renumbered[kept] = np.arange(len(kept))
        documents = renumbered[self.documents]
        remains = documents >= 0
        owners = np.repeat(np.arange(len(self.vocabulary)), self.offsets[1:] - self.offsets[:-1])[remains]
        frequencies = np.bincount(owners, minlength=len(self.vocabulary))
        occurs = frequencies > 0
        return type(self)(
            self.vocabulary[occurs],
            self.idf[occurs],
            offsets_of(frequencies[occurs]),
            documents[remains].astype(position_type(len(kept))),
            self.counts[remains],
            self.lengths[kept],
            self.statistics,
        )

    def save(self, path: Path) -> None:
        """Write the index to one safetensors file."""
        path.write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the bytes of the file that `save` writes."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return tensor_bytes(arrays | {"statistics": np.array(self.statistics, dtype=np.float64)})

    @classmethod
    def load(cls, path: Path, documents: int) -> Self:
        """Map the file that `save` wrote into memory."""
        arrays = map_tensors(path)
        values = arrays.pop("statistics", np.empty(0))
        complete = {*arrays} == {*_ARRAYS} and values.dtype == np.float64 and values.shape == (len(Statistics._fields),)
        if complete and values[-1] in get_args(WordRule):
            k1, b, mean_length, unseen_idf, _ = values.tolist()
            rule = next(known for known in get_args(WordRule) if known == values[-1])
            statistics = Statistics(k1, b, mean_length, unseen_idf, rule)
            index = cls(statistics=statistics, **arrays)
            if index.is_valid(documents):
                return index
        raise ReleaseError(f"{path}: does not hold the words of these documents; calibrate again")

    def is_valid(self, documents: int) -> bool:
        """Return whether the arrays, which may be from an untrusted file, are an index of this many documents."""
        arrays: list[NDArray[Any]] = [getattr(self, name) for name in _ARRAYS]
        count, postings = self.vocabulary.size, self.documents.size
        weight = np.float64 if self.idf.dtype == np.float64 else np.float32
        types = [np.uint32, weight, _offset_type(postings), position_type(documents), np.uint8, np.uint32]
        sizes = [count, count, count + 1, postings, postings, documents]
        if [array.dtype for array in arrays] != types or [array.shape for array in arrays] != [
            (size,) for size in sizes
        ]:
            return False
        return self._has_valid_statistics() and self._has_valid_vocabulary() and self._has_valid_postings()

    def _has_valid_statistics(self) -> bool:
        k1, b, mean_length, unseen_idf, _ = self.statistics
        if not (0 <= k1 < np.inf and 0 <= b <= 1 and 0 < mean_length < np.inf and 0 < unseen_idf < _MAX_IDF):
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.isfinite(self.saturation).all())

    def _has_valid_vocabulary(self) -> bool:
        """Return whether terms ascend, weigh at most as much as an unseen one, and all have postings."""
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.documents):
            return False
        weigh = (self.idf > 0) & (self.idf <= self.idf.dtype.type(self.statistics.unseen_idf))
        ascend = (self.vocabulary[1:] > self.vocabulary[:-1]).all() and (self.offsets[1:] > self.offsets[:-1]).all()
        return bool(weigh.all() and ascend)

    def _has_valid_postings(self) -> bool:
        if not (self.counts.all() and (self.documents < len(self)).all()):
            return False
        rising = self.documents[1:] > self.documents[:-1]
        rising[self.offsets[1:-1].astype(np.int64) - 1] = True  # documents may fall between terms
        return bool(rising.all())


def idf(frequencies: NDArray[Any], documents: int) -> Float64:
    """Return the weights of terms, float64: ln(1 + (N − n + ½) / (n + ½)), for n of N documents with the term."""
    # This is Robertson and Zaragoza's w^IDF (§3) with a 1 as in Lucene. Without it, terms in more than half of the
    # documents would have negative weights.
    frequency = frequencies.astype(np.float64)
    return np.log1p((documents - frequency + 0.5) / (frequency + 0.5))


def offsets_of(frequencies: NDArray[np.int64]) -> Unsigned:
    """Return where the documents of every term begin, then their number."""
    ends = np.concatenate([[0], np.cumsum(frequencies)])
    return ends.astype(_offset_type(int(ends[-1])))


def _offset_type(postings: int) -> type[np.uint32 | np.uint64]:
    """Return the smallest type that counts the postings."""
    return np.uint32 if postings < 1 << 32 else np.uint64


def position_type(documents: int) -> type[np.uint16 | np.uint32]:
    """Return the smallest type of a document's position."""
    return np.uint16 if documents <= 1 << 16 else np.uint32
