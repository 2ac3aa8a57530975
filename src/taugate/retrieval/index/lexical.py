"""BM25 over the terms of each document: compares a query's words with its few results, and with no other document.

An inverted index finds documents by a term; here the documents are found already, and only how well the query's terms
match them is wanted. So it is stored the other way round: a row for each sentence, the rows of a document one after the
other.
"""

import re
import unicodedata
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Terms = NDArray[np.uint32]
Float64 = NDArray[np.float64]

# Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", Foundations and Trends in
# Information Retrieval 3(4), 2009, §3.5: values of 1.2 < k1 < 2 and 0.5 < b < 0.8 are good in many cases. Lucene's.
_K1, _B = 1.2, 0.75
_MAX_COUNTED = 255  # times that a term counts in a sentence: beyond it next to nothing is added to its weight
_WORD = re.compile(r"\w+")
# A space behind a mark that ends a sentence, as in most scripts, or a mark that needs none; or the end of a line.
# "Mr. X" ends one as well, which costs little: a sentence only says which words stand together.
_SENTENCE_END = re.compile(r"(?<=[.!?…؟।])\s+|[。｡！？]+|\n+")


def terms(text: str) -> Terms:
    """Split a text into words; returns each as the CRC-32 of its letters, (t,) uint32, in order.

    A word is a run of letters, digits and marks after NFKC and case folding (Unicode Standard Annex 15; The Unicode
    Standard, §3.13), with no stemming and no list of stop words: these know one language. A script that puts no spaces
    between words has few and long ones here, which hardly ever match. Of a million different words some 116 pairs share
    a number, n²/2³³; each then counts as the other.
    """
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return np.fromiter((zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in words), np.uint32, len(words))


def sentences(text: str) -> list[Terms]:
    """Split a text into sentences; returns the terms of each sentence that has any."""
    found = (terms(sentence) for sentence in _SENTENCE_END.split(text))
    return [each for each in found if len(each)]


class Match(NamedTuple):
    """The match of a query's terms with w documents, each figure a share in 0…1 of the sum of the terms' idf.

    Attributes:
        bm25: (w,) the BM25 score of each document.
        idf: (w,) the idf of the terms that are in the document.
        sentence: The largest idf of terms that stand in one sentence of one of the documents.
    """

    bm25: Float64
    idf: Float64
    sentence: float


@dataclass(frozen=True)
class ForwardIndex:
    """The terms of N documents with S sentences and V different terms: a row of postings for each sentence.

    Attributes:
        vocabulary: (V,) uint32, the terms, ascending.
        frequencies: (V,) uint32, how many documents have each.
        documents: (N + 1,) int64, the first sentence of each document, and S.
        offsets: (S + 1,) int64, where the row of each sentence begins, and P.
        codes: (P,) uint32 positions in the vocabulary, ascending in each row.
        counts: (P,) uint8, how often the sentence has the term.
    """

    vocabulary: Terms
    frequencies: NDArray[np.uint32]
    documents: NDArray[np.int64]
    offsets: NDArray[np.int64]
    codes: NDArray[np.uint32]
    counts: NDArray[np.uint8]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Index texts, which come in the order of the documents' positions."""
        rows, distinct = [_NO_ROWS], [_NO_ROWS.terms]
        ends = [0]
        for text in texts:
            row = _sentence_rows(sentences(text))
            rows.append(row)
            distinct.append(np.unique(row.terms))
            ends.append(ends[-1] + len(row.sizes))
        vocabulary, frequencies = np.unique(np.concatenate(distinct), return_counts=True)
        found, counts, sizes = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        return cls(
            vocabulary,
            frequencies.astype(np.uint32),
            np.array(ends, dtype=np.int64),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.searchsorted(vocabulary, found).astype(np.uint32),
            np.minimum(counts, _MAX_COUNTED).astype(np.uint8),
        )

    def __len__(self) -> int:
        return len(self.documents) - 1

    @cached_property
    def _idf(self) -> Float64:
        """Weight of each term, (V + 1,); the last is that of a term that no document has."""
        return _idf(np.append(self.frequencies, 0), len(self))

    @cached_property
    def _saturation(self) -> Float64:
        """How often a term occurs in each document where it weighs half of its idf, (N,)."""
        ends = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])[self.offsets[self.documents]]
        return _saturation(np.diff(ends))

    def match(self, text: str, positions: NDArray[np.int64]) -> Match:
        """Compare a query with some documents.

        The weight of a term in a document is idf · tf / (k1·((1 − b) + b·dl/avdl) + tf) (eq. 3.15), which stays below
        its idf; a term that the query repeats counts once. All shares are 0 for a query without terms.

        Args:
            text: Of the query.
            positions: (w,) int64 positions of the documents.
        """
        asked = np.unique(terms(text))
        codes = self._codes(asked)
        idf = self._idf[codes]
        total = float(idf.sum() + (len(asked) - len(codes)) * self._idf[-1])
        if not len(codes) or not len(positions):
            return Match(np.zeros(len(positions)), np.zeros(len(positions)), 0.0)
        owner, place, posting = self._postings(codes, positions)
        cells = len(positions) * len(codes)
        times = np.bincount(owner * len(codes) + place, self.counts[posting], cells).reshape(len(positions), -1)
        weights = times / (self._saturation[positions][:, None] + times)
        together = np.bincount(self._sentences(posting, owner, positions), idf[place], 1)
        return Match(weights @ idf / total, (times > 0) @ idf / total, float(together.max()) / total)

    def _codes(self, asked: Terms) -> NDArray[np.uint32]:
        """Return the codes of the terms that any document has, ascending."""
        places = np.searchsorted(self.vocabulary, asked, side="left")
        known = np.searchsorted(self.vocabulary, asked, side="right") > places
        return places[known].astype(np.uint32)

    def _postings(self, codes: NDArray[np.uint32], positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Find the postings of some terms, at least one, in some documents.

        Returns, for each posting found: the place of its document in `positions`, that of its term in `codes`, and the
        posting's own index.
        """
        begin, end = (self.offsets[self.documents[positions + after]] for after in (0, 1))
        stored = np.concatenate([self.codes[row] for row in map(slice, begin.tolist(), end.tolist())])
        places = np.minimum(np.searchsorted(codes, stored), len(codes) - 1)
        there = np.flatnonzero(codes[places] == stored)
        sizes = end - begin
        owners = np.repeat(np.arange(len(positions)), sizes)[there]
        before = (np.cumsum(sizes) - sizes)[owners]
        return owners, places[there], there - before + begin[owners]

    def _sentences(
        self, posting: NDArray[np.int64], owner: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the sentence of each posting, numbered through the documents at `positions`."""
        begin, end = self.documents[positions], self.documents[positions + 1]
        sizes = end - begin
        shift = np.cumsum(sizes) - sizes - begin
        sentence: NDArray[np.int64] = np.searchsorted(self.offsets, posting, side="right") - 1 + shift[owner]
        return sentence

    def is_valid(self, documents: int) -> bool:
        """Tell whether the arrays, which may come from any file, are those of an index of so many documents."""
        arrays: tuple[NDArray[Any], ...]
        arrays = (self.vocabulary, self.frequencies, self.documents, self.offsets, self.codes, self.counts)
        types = [np.uint32, np.uint32, np.int64, np.int64, np.uint32, np.uint8]
        if [array.dtype for array in arrays] != types or any(array.ndim != 1 for array in arrays):
            return False
        known, postings = len(self.vocabulary), len(self.codes)
        if len(self.documents) != documents + 1 or len(self.frequencies) != known or len(self.counts) != postings:
            return False
        if not _spans(self.documents, len(self.offsets) - 1) or not _spans(self.offsets, postings):
            return False
        if (self.frequencies > documents).any() or (self.codes >= known).any() or (self.counts == 0).any():
            return False
        rising = self.codes[1:] > self.codes[:-1]
        begin = self.offsets[(self.offsets > 0) & (self.offsets < postings)]
        rising[begin - 1] = True  # from one row to the next they may fall
        return bool(rising.all() and (self.vocabulary[1:] > self.vocabulary[:-1]).all())


def bm25_scores(texts: Iterable[str], queries: Sequence[str]) -> Iterator[Float64]:
    """Yield the BM25 scores of all N documents for one query after the other, (N,) float64 each.

    The texts are read once, and only the terms of the queries are kept: less work than an index of every term, which
    few queries would use.

    Args:
        texts: Of the documents, in the order of their positions.
        queries: One at least.
    """
    asked = [np.unique(terms(query)) for query in queries]
    wanted = np.unique(np.concatenate(asked))
    lengths, documents, places, counts = array("q"), array("q"), array("q"), array("q")
    for position, text in enumerate(texts):
        found = terms(text)
        lengths.append(len(found))
        known, times = np.unique(found[np.isin(found, wanted)], return_counts=True)
        documents.extend([position] * len(known))
        places.extend(np.searchsorted(wanted, known).tolist())
        counts.extend(times.tolist())
    order = np.argsort(np.array(places, dtype=np.int64), kind="stable")
    begin = np.searchsorted(np.array(places, dtype=np.int64)[order], np.arange(len(wanted) + 1))
    document, times = (np.array(each, dtype=np.int64)[order] for each in (documents, counts))
    idf, saturation = _idf(np.diff(begin), len(lengths)), _saturation(np.array(lengths, dtype=np.int64))
    for each in asked:
        scores = np.zeros(len(lengths))
        for place in np.searchsorted(wanted, each).tolist():
            rows = slice(begin[place], begin[place + 1])
            having, often = document[rows], times[rows]
            scores[having] += idf[place] * often / (saturation[having] + often)
        yield scores


def _idf(frequencies: NDArray[Any], documents: int) -> Float64:
    """Return the weight of each term: ln(1 + (N − n + ½) / (n + ½)).

    Robertson and Zaragoza's w^IDF (§3), with a 1 as in Lucene: without it, what is in over half of the documents would
    count against them.

    Args:
        frequencies: n, how many documents have each term.
        documents: N.
    """
    frequency = frequencies.astype(np.float64)
    return np.log1p((documents - frequency + 0.5) / (frequency + 0.5))


def _saturation(lengths: NDArray[np.int64]) -> Float64:
    """Return k1·((1 − b) + b·dl/avdl) of each document, given its length dl in terms."""
    length: Float64 = lengths.astype(np.float64)
    return _K1 * ((1 - _B) + _B * length / (float(length.mean()) or 1.0))


class _SentenceRows(NamedTuple):
    """The rows of one document's sentences, one after another.

    Attributes:
        terms: Ascending in each row.
        counts: How often the sentence has each.
        sizes: How many terms each row has.
    """

    terms: Terms
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]


_NO_ROWS = _SentenceRows(np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.int64))


def _sentence_rows(split: list[Terms]) -> _SentenceRows:
    """Count the terms of all sentences of a document in one call, by sentence and term."""
    if not split:
        return _NO_ROWS
    sentence = np.repeat(np.arange(len(split), dtype=np.uint64), [len(each) for each in split])
    keys, counts = np.unique(sentence << np.uint64(32) | np.concatenate(split), return_counts=True)
    sizes = np.bincount((keys >> np.uint64(32)).astype(np.int64), minlength=len(split))
    return _SentenceRows((keys & np.uint64(0xFFFFFFFF)).astype(np.uint32), counts, sizes)


def _spans(offsets: NDArray[np.int64], size: int) -> bool:
    """Tell whether offsets divide `size` items into rows: from 0 to `size`, never falling."""
    return len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == size and bool((np.diff(offsets) >= 0).all())
