"""The terms of each document, so that a query's few results can be compared with its words without a look at any other.

An inverted index finds documents by a term; here the documents are found already, and only how well the query's terms
match them is wanted. So it is stored the other way round: a row for each sentence, the rows of a document one after the
other.
"""

import re
import unicodedata
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Terms = NDArray[np.uint32]

_WORD = re.compile(r"\w+")
# A space behind a mark that ends a sentence, as in most scripts, or a mark that needs none; or the end of a line.
# "Mr. X" ends one as well, which costs little: all that is asked of a sentence is which words stand together.
_END = re.compile(r"(?<=[.!?…؟।])\s+|[。｡！？]+|\n+")


def terms(text: str) -> Terms:
    """The words of a text in their order, each as the CRC-32 of its letters, (t,) uint32.

    A word is a run of letters, digits and marks after NFKC and case folding (Unicode Standard Annex 15; The Unicode
    Standard, §3.13), with no stemming and no list of stop words: these know one language. A script that puts no spaces
    between words has few and long ones here, which hardly ever match. Of a million different words some 116 pairs share
    a number, n²/2³³; each then counts as the other.
    """
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return np.fromiter((zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in words), np.uint32, len(words))


def sentences(text: str) -> list[Terms]:
    """The terms of each sentence that has any."""
    found = (terms(sentence) for sentence in _END.split(text))
    return [each for each in found if len(each)]


Float64 = NDArray[np.float64]
# Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", Foundations and Trends in
# Information Retrieval 3(4), 2009, §3.5: values of 1.2 < k1 < 2 and 0.5 < b < 0.8 are good in many cases. Lucene's.
_K1, _B = 1.2, 0.75
_MOST_COUNTED = 255  # times that a term counts in a sentence: beyond it next to nothing is added to its weight


class Match(NamedTuple):
    """How well a query's terms match w documents, as shares of the most that a document could have, in 0…1.

    bm25: (w,) of the sum of all weights; idf: (w,) the idf of the terms that are in the document; sentence: of those
    that stand in one sentence of one of the documents, at most.
    """

    bm25: Float64
    idf: Float64
    sentence: float


@dataclass(frozen=True)
class ForwardIndex:
    """Of N documents with S sentences and V different terms.

    vocabulary: (V,) uint32, ascending; frequencies: (V,) uint32, documents that have each; documents: (N + 1,) int64,
    the first sentence of each document; offsets: (S + 1,) int64, where the row of each sentence begins; codes: uint32
    positions in the vocabulary, ascending in each row; counts: uint8, how often the sentence has the term.
    """

    vocabulary: Terms
    frequencies: NDArray[np.uint32]
    documents: NDArray[np.int64]
    offsets: NDArray[np.int64]
    codes: NDArray[np.uint32]
    counts: NDArray[np.uint8]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Of texts in the order of their positions."""
        rows, distinct = [_NOTHING], [_NOTHING.terms]
        ends = [0]
        for text in texts:
            row = _rows(sentences(text))
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
            np.minimum(counts, _MOST_COUNTED).astype(np.uint8),
        )

    def __len__(self) -> int:
        return len(self.documents) - 1

    @cached_property
    def _idf(self) -> Float64:
        """ln(1 + (N − n + ½) / (n + ½)) of each term of the vocabulary, n the documents that have it; one more for 0.

        Robertson and Zaragoza's w^IDF (§3), with a 1 as in Lucene: without it, what is in over half of the documents
        would count against them.
        """
        frequency = np.append(self.frequencies, 0).astype(np.float64)
        return np.log1p((len(self) - frequency + 0.5) / (frequency + 0.5))

    @cached_property
    def _saturation(self) -> Float64:
        """k1·((1 − b) + b·dl/avdl) of each document, (N,): a term that is in it so often has half of its idf."""
        ends = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])[self.offsets[self.documents]]
        lengths: Float64 = np.diff(ends).astype(np.float64)
        return _K1 * ((1 - _B) + _B * lengths / (float(lengths.mean()) or 1.0))

    def match(self, text: str, positions: NDArray[np.int64]) -> Match:
        """A query with the documents at `positions`, (w,).

        The weight of a term in a document is idf · tf / (k1·((1 − b) + b·dl/avdl) + tf) (eq. 3.15), which stays below
        its idf; a term that the query repeats counts once. All shares are 0 for a query without terms.
        """
        asked = np.unique(terms(text))
        codes = self._codes(asked)
        idf = self._idf[codes]
        total = float(idf.sum() + (len(asked) - len(codes)) * self._idf[-1])
        if not len(codes) or not len(positions):
            return Match(np.zeros(len(positions)), np.zeros(len(positions)), 0.0)
        owner, place, posting = self._found(codes, positions)
        cells = len(positions) * len(codes)
        times = np.bincount(owner * len(codes) + place, self.counts[posting], cells).reshape(len(positions), -1)
        weights = times / (self._saturation[positions][:, None] + times)
        together = np.bincount(self._sentence(posting, owner, positions), idf[place], 1)
        return Match(weights @ idf / total, (times > 0) @ idf / total, float(together.max()) / total)

    def _codes(self, asked: Terms) -> NDArray[np.uint32]:
        """Of those terms that any document has, ascending."""
        places = np.searchsorted(self.vocabulary, asked, side="left")
        known = np.searchsorted(self.vocabulary, asked, side="right") > places
        return places[known].astype(np.uint32)

    def _found(self, codes: NDArray[np.uint32], positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Where the documents have these terms, one of them at least: which document, which term, and which posting."""
        begin, end = (self.offsets[self.documents[positions + after]] for after in (0, 1))
        stored = np.concatenate([self.codes[row] for row in map(slice, begin.tolist(), end.tolist())])
        places = np.minimum(np.searchsorted(codes, stored), len(codes) - 1)
        there = np.flatnonzero(codes[places] == stored)
        sizes = end - begin
        owners = np.repeat(np.arange(len(positions)), sizes)[there]
        before = (np.cumsum(sizes) - sizes)[owners]
        return owners, places[there], there - before + begin[owners]

    def _sentence(
        self, posting: NDArray[np.int64], owner: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The sentence of each posting, numbered through the documents at `positions`."""
        begin, end = self.documents[positions], self.documents[positions + 1]
        sizes = end - begin
        shift = np.cumsum(sizes) - sizes - begin
        sentence: NDArray[np.int64] = np.searchsorted(self.offsets, posting, side="right") - 1 + shift[owner]
        return sentence

    def whole(self, documents: int) -> bool:
        """Whether the arrays, which may be anything, are those of an index of so many documents."""
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


class _Rows(NamedTuple):
    """The rows of one document: terms ascending in each, how often each occurs, and how many each row has."""

    terms: Terms
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]


_NOTHING = _Rows(np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.int64))


def _rows(split: list[Terms]) -> _Rows:
    """All at once, by sentence and term, and not by a call for each sentence."""
    if not split:
        return _NOTHING
    sentence = np.repeat(np.arange(len(split), dtype=np.uint64), [len(each) for each in split])
    keys, counts = np.unique(sentence << np.uint64(32) | np.concatenate(split), return_counts=True)
    sizes = np.bincount((keys >> np.uint64(32)).astype(np.int64), minlength=len(split))
    return _Rows((keys & np.uint64(0xFFFFFFFF)).astype(np.uint32), counts, sizes)


def _spans(offsets: NDArray[np.int64], size: int) -> bool:
    """Whether these are where each of some rows begins, with the end of the last, of so many things in all."""
    return len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == size and bool((np.diff(offsets) >= 0).all())
