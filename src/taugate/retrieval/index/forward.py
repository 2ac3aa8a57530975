"""BM25 over the terms of documents: compares a query's words with its few results only.

An inverted index finds documents by term. Here the documents are known and only the match of the query's terms is
needed, so the index stores the terms by sentence: one row per sentence, with the rows of a document in sequence.
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
_MAX_COUNTED = 255  # cap of a term's count in a sentence; further occurrences hardly add to its weight
_WORD = re.compile(r"\w+")
# A sentence ends at a space after an end mark, at a mark of a script without spaces, or at the end of a line. "Mr. X"
# ends one as well, which matters little because sentences only group words.
_SENTENCE_END = re.compile(r"(?<=[.!?…؟।])\s+|[。｡！？]+|\n+")


def terms(text: str) -> Terms:
    """Split a text into words; returns their CRC-32 in order, (t,) uint32.

    A word is a run of letters, digits and marks after NFKC and case folding (Unicode Standard Annex 15; The Unicode
    Standard, §3.13). There is no stemming and no stop word list because these depend on the language. In scripts
    without spaces, words are few and long and rarely match. Among a million distinct words some 116 pairs, n²/2³³,
    share a number and are treated as equal.
    """
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return np.fromiter((zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in words), np.uint32, len(words))


def sentences(text: str) -> list[Terms]:
    """Split a text into sentences; returns the terms of each sentence that has any."""
    parts = (terms(sentence) for sentence in _SENTENCE_END.split(text))
    return [sentence for sentence in parts if len(sentence)]


class Match(NamedTuple):
    """The match of a query's terms with w documents, as shares, 0…1, of the sum of the terms' idf.

    Attributes:
        bm25: (w,) BM25 scores of the documents.
        idf: (w,) idf of the terms in the document.
        sentence: Largest idf of the terms in one sentence of a document.
    """

    bm25: Float64
    idf: Float64
    sentence: float


@dataclass(frozen=True)
class ForwardIndex:
    """The terms of N documents with S sentences and V distinct terms, as one row of postings per sentence.

    Attributes:
        vocabulary: (V,) uint32 ascending terms.
        frequencies: (V,) uint32 numbers of documents with the term.
        documents: (N + 1,) int64 first sentence of every document, then S.
        offsets: (S + 1,) int64 start of every sentence's row, then P.
        codes: (P,) uint32 positions in the vocabulary, ascending within a row.
        counts: (P,) uint8 counts of the term in the sentence.
    """

    vocabulary: Terms
    frequencies: NDArray[np.uint32]
    documents: NDArray[np.int64]
    offsets: NDArray[np.int64]
    codes: NDArray[np.uint32]
    counts: NDArray[np.uint8]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Index texts, given in the order of the documents' positions."""
        rows, distinct = [_NO_ROWS], [_NO_ROWS.terms]
        ends = [0]
        for text in texts:
            row = _sentence_rows(sentences(text))
            rows.append(row)
            distinct.append(np.unique(row.terms))
            ends.append(ends[-1] + len(row.sizes))
        vocabulary, frequencies = np.unique(np.concatenate(distinct), return_counts=True)
        all_terms, counts, sizes = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        return cls(
            vocabulary,
            frequencies.astype(np.uint32),
            np.array(ends, dtype=np.int64),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.searchsorted(vocabulary, all_terms).astype(np.uint32),
            np.minimum(counts, _MAX_COUNTED).astype(np.uint8),
        )

    def __len__(self) -> int:
        return len(self.documents) - 1

    @cached_property
    def _idf(self) -> Float64:
        """Weights of the terms, (V + 1,); the last is that of a term that no document has."""
        return _idf(np.append(self.frequencies, 0), len(self))

    @cached_property
    def _saturation(self) -> Float64:
        """Count at which a term weighs half of its idf, by document, (N,)."""
        ends = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])[self.offsets[self.documents]]
        return _saturation(np.diff(ends))

    def match(self, text: str, positions: NDArray[np.int64]) -> Match:
        """Compare a query with some documents.

        The weight of a term in a document is idf · tf / (k1·((1 − b) + b·dl/avdl) + tf) (eq. 3.15), which is below its
        idf. Repeated terms of the query count once. All shares are 0 for a query without terms.

        Args:
            text: Text of the query.
            positions: (w,) int64 positions of the documents.
        """
        query_terms = np.unique(terms(text))
        codes = self._codes(query_terms)
        idf = self._idf[codes]
        total = float(idf.sum() + (len(query_terms) - len(codes)) * self._idf[-1])
        if not len(codes) or not len(positions):
            return Match(np.zeros(len(positions)), np.zeros(len(positions)), 0.0)
        owner, place, posting = self._postings(codes, positions)
        cells = len(positions) * len(codes)
        times = np.bincount(owner * len(codes) + place, self.counts[posting], cells).reshape(len(positions), -1)
        weights = times / (self._saturation[positions][:, None] + times)
        together = np.bincount(self._sentences(posting, owner, positions), idf[place], 1)
        return Match(weights @ idf / total, (times > 0) @ idf / total, float(together.max()) / total)

    def _codes(self, query_terms: Terms) -> NDArray[np.uint32]:
        """Return the codes of the terms in the vocabulary, ascending."""
        places = np.searchsorted(self.vocabulary, query_terms, side="left")
        in_vocabulary = np.searchsorted(self.vocabulary, query_terms, side="right") > places
        return places[in_vocabulary].astype(np.uint32)

    def _postings(self, codes: NDArray[np.uint32], positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Find the postings of at least one term in some documents.

        Returns:
            For every posting, the place of its document in `positions`, the place of its term in `codes`, and its own
            index.
        """
        begin, end = (self.offsets[self.documents[positions + after]] for after in (0, 1))
        stored = np.concatenate([self.codes[row] for row in map(slice, begin.tolist(), end.tolist())])
        places = np.minimum(np.searchsorted(codes, stored), len(codes) - 1)
        matching = np.flatnonzero(codes[places] == stored)
        sizes = end - begin
        owners = np.repeat(np.arange(len(positions)), sizes)[matching]
        before = (np.cumsum(sizes) - sizes)[owners]
        return owners, places[matching], matching - before + begin[owners]

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
        """Return whether the arrays, which may be from an untrusted file, are an index of this many documents."""
        arrays: tuple[NDArray[Any], ...]
        arrays = (self.vocabulary, self.frequencies, self.documents, self.offsets, self.codes, self.counts)
        types = [np.uint32, np.uint32, np.int64, np.int64, np.uint32, np.uint8]
        if [array.dtype for array in arrays] != types or any(array.ndim != 1 for array in arrays):
            return False
        size, postings = len(self.vocabulary), len(self.codes)
        if len(self.documents) != documents + 1 or len(self.frequencies) != size or len(self.counts) != postings:
            return False
        if not _spans(self.documents, len(self.offsets) - 1) or not _spans(self.offsets, postings):
            return False
        if (self.frequencies > documents).any() or (self.codes >= size).any() or (self.counts == 0).any():
            return False
        rising = self.codes[1:] > self.codes[:-1]
        begin = self.offsets[(self.offsets > 0) & (self.offsets < postings)]
        rising[begin - 1] = True  # they may fall between rows
        return bool(rising.all() and (self.vocabulary[1:] > self.vocabulary[:-1]).all())


def bm25_scores(texts: Iterable[str], queries: Sequence[str]) -> Iterator[Float64]:
    """Yield the BM25 scores of all N documents for one query after another, (N,) float64.

    The texts are read once and only the terms of the queries are counted, which is less work than indexing all terms.

    Args:
        texts: Texts of the documents, in the order of their positions.
        queries: At least one query.
    """
    terms_by_query = [np.unique(terms(query)) for query in queries]
    query_terms = np.unique(np.concatenate(terms_by_query))
    lengths, documents, places, counts = array("q"), array("q"), array("q"), array("q")
    for position, text in enumerate(texts):
        text_terms = terms(text)
        lengths.append(len(text_terms))
        matching, times = np.unique(text_terms[np.isin(text_terms, query_terms)], return_counts=True)
        documents.extend([position] * len(matching))
        places.extend(np.searchsorted(query_terms, matching).tolist())
        counts.extend(times.tolist())
    order = np.argsort(np.array(places, dtype=np.int64), kind="stable")
    begin = np.searchsorted(np.array(places, dtype=np.int64)[order], np.arange(len(query_terms) + 1))
    document, times = (np.array(column, dtype=np.int64)[order] for column in (documents, counts))
    idf, saturation = _idf(np.diff(begin), len(lengths)), _saturation(np.array(lengths, dtype=np.int64))
    for one_query_terms in terms_by_query:
        scores = np.zeros(len(lengths))
        for place in np.searchsorted(query_terms, one_query_terms).tolist():
            rows = slice(begin[place], begin[place + 1])
            having, often = document[rows], times[rows]
            scores[having] += idf[place] * often / (saturation[having] + often)
        yield scores


def _idf(frequencies: NDArray[Any], documents: int) -> Float64:
    """Return the weights of terms: ln(1 + (N − n + ½) / (n + ½)), for n of N documents with the term.

    This is Robertson and Zaragoza's w^IDF (§3) with a 1 as in Lucene. Without it, terms in more than half of the
    documents would have negative weights.
    """
    frequency = frequencies.astype(np.float64)
    return np.log1p((documents - frequency + 0.5) / (frequency + 0.5))


def _saturation(lengths: NDArray[np.int64]) -> Float64:
    """Return k1·((1 − b) + b·dl/avdl) for documents of dl terms."""
    length: Float64 = lengths.astype(np.float64)
    return _K1 * ((1 - _B) + _B * length / (float(length.mean()) or 1.0))


class _SentenceRows(NamedTuple):
    """The rows of one document's sentences in sequence.

    Attributes:
        terms: Terms, ascending within a row.
        counts: Counts of the terms in the sentence.
        sizes: Numbers of terms by row.
    """

    terms: Terms
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]


_NO_ROWS = _SentenceRows(np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.int64))


def _sentence_rows(split: list[Terms]) -> _SentenceRows:
    """Count the terms of all sentences of a document in one call, by sentence and term."""
    if not split:
        return _NO_ROWS
    sentence = np.repeat(np.arange(len(split), dtype=np.uint64), [len(sentence_terms) for sentence_terms in split])
    keys, counts = np.unique(sentence << np.uint64(32) | np.concatenate(split), return_counts=True)
    sizes = np.bincount((keys >> np.uint64(32)).astype(np.int64), minlength=len(split))
    return _SentenceRows((keys & np.uint64(0xFFFFFFFF)).astype(np.uint32), counts, sizes)


def _spans(offsets: NDArray[np.int64], size: int) -> bool:
    """Return whether offsets divide `size` items into rows: from 0 to `size`, never falling."""
    return len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == size and bool((np.diff(offsets) >= 0).all())
