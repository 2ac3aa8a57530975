"""The lexical share of a query and a document on a fixed scale, and the match of a query's words with its results.

The share is BM25(query, document) over the largest BM25 that any document could reach for the query, so it is in 0…1
and depends on the query, the document and statistics of the corpus alone: not on the list, the batch or the shard. A
threshold on a sum with it therefore keeps its meaning. A share has the same bits on every machine: the weights of the
terms are stored, and every share is a sum in float64, in the order of the terms' numbers, that is rounded once.

Releases from before scores had a lexical part stored words by sentence. Their scores stay equal as long as their idf is
in float64, their words are those of rule 1, and k1 and b are Lucene's.
"""

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from taugate.policy.abstention import ReadWords, WordMatch, Words
from taugate.policy.arrays import Float32, Float64, Terms
from taugate.release.search_records import LexicalRecord
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.words import (
    MAX_COUNTED,
    RULE,
    Positions,
    Postings,
    Statistics,
    Unsigned,
    WordRule,
    characters,
    idf,
    offsets_of,
    position_type,
    query_terms,
    term_of,
    words,
)
from taugate.storage.tensors import Arrays

# More than the rounding of a share and of sums in another order.
_ROUNDING = 1e-6
# Terms are read even if bounds could replace them while their documents are at most this many: about 0.1 ms.
_FEW_POSTINGS = 1 << 13
# Postings are sorted by document if they are fewer than one in this many documents, and counted in an array otherwise.
_SORTED_ONE_IN = 16

# A sentence ends at a space after an end mark, at a mark of a script without spaces, or at the end of a line. "Mr. X"
# ends one as well, which matters little because sentences only group words.
_SENTENCE_END = re.compile(r"(?<=[.!?…؟।])\s+|[。｡！？]+|\n+")

# Types of the arrays by name: (V,) ascending terms, (V,) numbers of documents with them, (N + 1,) first sentence of
# every document, (S + 1,) start of every sentence's row, and by row (P,) positions in the vocabulary and counts.
TYPES: dict[str, type[np.generic]] = {
    "vocabulary": np.uint32,
    "frequencies": np.uint32,
    "documents": np.int64,
    "offsets": np.int64,
    "codes": np.uint32,
    "counts": np.uint8,
}
_K1, _B = 1.2, 0.75


class TermScores(NamedTuple):
    """The BM25 weights of a query's terms, summed by document."""

    scores: Float64  # (N,) float64 sums; divided by `total`, they are shares
    total: float  # largest sum that any document could reach


@dataclass(frozen=True, eq=False)
class LexicalCandidates:
    """Documents that may reach a share of a query."""

    positions: Positions  # (m,) int64, ascending by default
    shares: Float64  # (m,) float64 upper bounds of their shares
    complete: bool  # whether all documents that may reach the share are among them

    def __len__(self) -> int:
        return len(self.positions)

    def most(self, count: int) -> Self:
        """Return the candidates with the highest bounds, at most `count` of them, in descending order."""
        best = np.arange(len(self)) if len(self) <= count else np.argpartition(-self.shares, count)[:count]
        best = best[np.argsort(-self.shares[best])]
        return type(self)(self.positions[best], self.shares[best], self.complete)


class LexicalIndex(Postings):
    """The lexical shares of N documents."""

    def shares(self, query_terms: Terms, positions: Positions) -> Float32:
        """Return the shares of one query and some documents, (c,) float32.

        The weight of a term in a document is idf · tf / (k1·((1 − b) + b·dl/avdl) + tf) (Robertson and Zaragoza, "The
        Probabilistic Relevance Framework: BM25 and Beyond", 2009, eq. 3.15), which is below its idf; the factor k1 + 1
        of BM25 cancels. A query without terms has shares of 0.

        Args:
            positions: (c,) int64 positions of the documents.
        """
        codes, total = self._codes(query_terms)
        return share_of(self._bm25(codes, self._counts(codes, positions), positions), total)

    def unrounded_shares(self, query_terms: Terms, positions: Positions) -> tuple[Float64, Float64]:
        """Return `shares` before they are rounded, and the shares of the query's idf that documents have the terms of.

        Both are (c,) float64; see `shares` for the parameters.
        """
        codes, total = self._codes(query_terms)
        counts = self._counts(codes, positions)
        idf = np.where(counts > 0, self.idf[codes].astype(np.float64)[:, None], 0.0)
        return self._bm25(codes, counts, positions) / total, _in_order(idf) / total

    def weights(self, query_terms: Terms) -> Float64:
        """Return the idf of a query's terms as shares of their sum, (t,) float64."""
        codes, total = self._codes(query_terms)
        weights = np.full(len(query_terms), self.statistics.unseen_idf)
        weights[np.isin(query_terms, self.vocabulary[codes])] = self.idf[codes]
        return weights / total

    def _bm25(self, codes: Positions, counts: NDArray[np.uint8], positions: Positions) -> Float64:
        """Return the sums of the weights of t terms, (c,), given their counts, (t, c)."""
        times = counts.astype(np.float64)
        weights = self.idf[codes].astype(np.float64)[:, None] * times
        np.divide(weights, self.saturation[positions] + times, out=weights, where=times > 0)
        return _in_order(weights)

    def term_scores(self, query_terms: Terms) -> TermScores:
        """Sum the weights of a query's terms for all documents; `share_of` the sums equals `shares` to the bit."""
        codes, total = self._codes(query_terms)
        return TermScores(_sums(*self._postings(codes), len(self)), total)

    def all_shares(self, queries: Sequence[Terms]) -> Float32:
        """Return the shares of n queries and all documents, (n, N) float32, which equal `shares` to the bit."""
        shares = np.empty((len(queries), len(self)), dtype=np.float32)
        for row, own_terms in zip(shares, queries, strict=True):
            codes, total = self._codes(own_terms)
            rows = self._rows(codes)
            documents = np.concatenate([self.documents[:0], *(self.documents[row] for row in rows)])
            weights = np.concatenate([self._all_weights[:0], *(self._all_weights[row] for row in rows)])
            row[:] = _sums(documents, weights, len(self)) / total
        return shares

    @cached_property
    def _all_weights(self) -> Float64:
        """The weight of the term in the document for each posting, (P,)."""
        return self._postings(np.arange(len(self.vocabulary)))[1]

    def range_shares(self, query_terms: Terms, first: int, stop: int) -> Float32:
        """Return the shares of one query and the documents at positions first…stop − 1, (stop − first,) float32.

        They equal `shares` to the bit, and are faster to compute for many documents in a row.

        Args:
            stop: Position after the last document, above `first`.
        """
        codes, total = self._codes(query_terms)
        scores, as_position = np.zeros(stop - first), self.documents.dtype.type
        for code in codes.tolist():
            row = slice(int(self.offsets[code]), int(self.offsets[code + 1]))
            start, end = self.documents[row].searchsorted(as_position(first)), row.start
            end += int(self.documents[row].searchsorted(as_position(stop - 1), side="right"))
            row = slice(row.start + int(start), end)
            documents, times = self.documents[row].astype(np.int64), self.counts[row].astype(np.float64)
            weights = np.float64(self.idf[code]) * times
            scores[documents - first] += weights / (self.saturation[documents] + times)
        return share_of(scores, total)

    def reaching(self, query_terms: Terms, share: float, max_postings: int | None = None) -> LexicalCandidates:
        """Return the documents with a term of a query that may have at least a share of it.

        The rarest terms are read. Other terms count as if each document had them any number of times, and are left out
        once they cannot reach the share by themselves, so the most frequent ones are rarely read (Turtle and Flood,
        "Query Evaluation: Strategies and Optimizations", Information Processing & Management 31(6), 1995).

        Args:
            share: The share; documents without any of the terms are left out, even if it is not above 0.
            max_postings: Largest number of postings to read; None for all that are needed.
        """
        codes, total = self._codes(query_terms)
        needed = (share - _ROUNDING) * total
        frequencies = self._frequencies(codes)
        order = np.argsort(frequencies, kind="stable")
        codes, postings = codes[order], np.cumsum(frequencies[order])
        unread = np.append(np.cumsum(self.idf[codes[::-1]].astype(np.float64))[::-1], 0.0)  # before the term is read
        stop = (unread[:-1] < needed) & (postings > _FEW_POSTINGS)
        if max_postings is not None:
            stop |= postings > max_postings
        count = int(np.argmax(stop)) if stop.any() else len(codes)
        having, weights = self._postings(codes[:count])
        if len(having) * _SORTED_ONE_IN < len(self):
            distinct, places = np.unique(having, return_inverse=True)
            positions, bounds = distinct.astype(np.int64), _sums(places, weights, len(distinct))
        else:
            sums = _sums(having, weights, len(self))
            positions = np.flatnonzero(sums)
            bounds = sums[positions]
        bounds += unread[count]
        may = np.flatnonzero(bounds >= needed)
        complete = count == len(codes) or bool(unread[count] < needed)
        return LexicalCandidates(positions[may], bounds[may] / total, complete)

    def _postings(self, codes: Positions) -> tuple[Unsigned, Float64]:
        """Return the documents of some terms and their weights in them, (p,) each, in the order of the terms."""
        if not len(codes):
            return self.documents[:0], np.empty(0)
        rows = self._rows(codes)
        documents = np.concatenate([self.documents[row] for row in rows])
        times = np.concatenate([self.counts[row] for row in rows]).astype(np.float64)
        idf = np.repeat(self.idf[codes].astype(np.float64), self._frequencies(codes))
        return documents, idf * times / (self.saturation[documents] + times)

    def _rows(self, codes: Positions) -> list[slice]:
        """Return where the postings of some terms are."""
        return list(map(slice, self.offsets[codes].tolist(), self.offsets[codes + 1].tolist()))

    def _counts(self, codes: Positions, positions: Positions) -> NDArray[np.uint8]:
        """Return how often c documents have t terms, (t, c); 0 if they do not."""
        sought = positions.astype(self.documents.dtype)
        starts, ends = (self.offsets[codes + after].astype(np.int64) for after in (0, 1))
        places = np.empty((len(codes), len(positions)), dtype=np.int64)
        for row, start, end in zip(places, starts.tolist(), ends.tolist(), strict=True):
            row[:] = self.documents[start:end].searchsorted(sought)
        places = np.minimum(places + starts[:, None], ends[:, None] - 1)
        return np.where(self.documents[places] == sought, self.counts[places], np.uint8(0))

    def _frequencies(self, codes: Positions) -> Positions:
        """Return how many documents have terms, (t,)."""
        return (self.offsets[codes + 1] - self.offsets[codes]).astype(np.int64)

    def _codes(self, query_terms: Terms) -> tuple[Positions, float]:
        """Return the places of the terms in the vocabulary, ascending, and the sum of all weights, at least 1e-9."""
        places = np.searchsorted(self.vocabulary, query_terms)
        inside = places < len(self.vocabulary)
        codes = places[inside]
        codes = codes[self.vocabulary[codes] == query_terms[inside]]
        unseen = (len(query_terms) - len(codes)) * self.statistics.unseen_idf
        return codes, max(math.fsum([*self.idf[codes].tolist(), unseen]), 1e-9)

    def matched(self, query_terms: Terms, positions: Positions) -> list[set[int]]:
        """Return which terms of a query some documents have, a set for each document.

        Args:
            positions: (c,) int64 positions of the documents.
        """
        codes, _ = self._codes(query_terms)
        found = self.vocabulary[codes]
        return [set(found[row > 0].tolist()) for row in self._counts(codes, positions).T]


def _in_order(rows: Float64) -> Float64:
    """Add t rows, (t, c), one after the other: np.sum may add in another order."""
    sums = np.zeros(rows.shape[1])
    for row in rows:
        sums += row
    return sums


def _sums(places: NDArray[np.integer[Any]], weights: Float64, count: int) -> Float64:
    """Sum weights by place, 0…count − 1, in the order in which they are given."""
    sums: Float64 = np.bincount(places, weights, count).astype(np.float64, copy=False)
    return sums


def share_of(scores: Float64, total: float) -> Float32:
    """Return sums of weights as shares of the largest possible sum, float32 of the same shape."""
    return (scores / total).astype(np.float32)


def lexical_record(words: LexicalIndex, weight: float) -> LexicalRecord:
    """Record the lexical part of a search."""
    return LexicalRecord(
        weight=weight,
        k1=words.statistics.k1,
        b=words.statistics.b,
        terms=len(words.vocabulary),
        sha256=hashlib.sha256(words.to_bytes()).hexdigest(),
    )


class ReadableDocuments(Protocol):
    """Documents by position."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> Document: ...


@dataclass(frozen=True, eq=False)
class DocumentWords:
    """The words of N documents."""

    index: LexicalIndex
    text: Callable[[int], str]

    @classmethod
    def of_documents(cls, index: LexicalIndex, documents: ReadableDocuments) -> Self:
        """Combine an index of the words with the documents."""
        return cls(index, lambda position: documents[position].encoded_text)

    def match(self, text: str, positions: NDArray[np.int64], *, sentences: bool = True) -> WordMatch:
        """Compare a query with some documents.

        Repeated words of the query count once. All shares are 0 for a query without words.

        Args:
            positions: (w,) int64 positions of the documents.
            sentences: Whether to look for the best sentence, which is 0 otherwise.
        """
        bm25, idf = self.index.unrounded_shares(query_terms(text, self.index.statistics.rule), positions)
        return WordMatch(bm25, idf, self._best_sentence(text, positions, idf) if sentences else 0.0)

    def _best_sentence(self, text: str, positions: NDArray[np.int64], idf: Float64) -> float:
        """Return the largest share of a query's idf in one sentence, reading the best documents first."""
        rule, best = self.index.statistics.rule, 0.0
        distinct = query_terms(text, rule)
        weights_of_terms = dict(zip(distinct.tolist(), self.index.weights(distinct).tolist(), strict=True))
        weights = {word: weights_of_terms[term_of(word)] for word in words(text, rule)}
        order = np.argsort(-idf, kind="stable")
        for position, limit in zip(positions[order].tolist(), idf[order].tolist(), strict=True):
            if limit <= best:  # no sentence has more of the words than its document
                break
            for sentence in split_sentences(self.text(position), rule):
                shared = weights.keys() & set(sentence)
                best = max(best, math.fsum(weights[word] for word in shared))
        return best


def word_reader(documents: ReadableDocuments, lexical: LexicalIndex | None = None) -> ReadWords:
    """Return what reads the words of documents from a score's file.

    Args:
        lexical: Index of their words; None if the release has none, or has the words in the score's file, which was so
            before scores had a lexical part.
    """

    def read(arrays: Arrays) -> DocumentWords | None:
        rows = {part: arrays.pop(part) for part in TYPES if part in arrays}
        index = from_sentences(rows, len(documents)) if rows else lexical
        return None if index is None else DocumentWords.of_documents(index, documents)

    return read


def index_of(words: Words | None) -> LexicalIndex | None:
    """Return the index of some words; None if there are none."""
    return words.index if isinstance(words, DocumentWords) else None


def split_sentences(text: str, rule: WordRule = RULE) -> Iterable[list[str]]:
    """Yield the words of each sentence of a text that has any; see `words.words`."""
    return filter(None, (words(sentence, rule) + characters(sentence, rule) for sentence in _SENTENCE_END.split(text)))


def from_sentences(arrays: Arrays, documents: int) -> LexicalIndex | None:
    """Convert words by sentence, which may be from an untrusted file, into an index of the words."""
    # Returns none if the arrays are not the words of this many documents.
    if {*arrays} != {*TYPES} or any(
        arrays[name].ndim != 1 or arrays[name].dtype != dtype for name, dtype in TYPES.items()
    ):
        return None
    codes, counts, vocabulary = arrays["codes"], arrays["counts"], arrays["vocabulary"]
    sentences, offsets = arrays["documents"], arrays["offsets"]
    if len(sentences) != documents + 1 or not _divides(sentences, len(offsets) - 1):
        return None
    if not _divides(offsets, len(codes)) or len(counts) != len(codes) or (codes >= len(vocabulary)).any():
        return None
    owners = np.repeat(np.repeat(np.arange(documents), np.diff(sentences)), np.diff(offsets))
    pairs, places = np.unique(codes * np.int64(documents) + owners, return_inverse=True)
    frequencies = np.bincount(pairs // documents, minlength=len(vocabulary))
    lengths = np.bincount(owners, counts, documents)
    weights = idf(np.append(frequencies, 0), documents)
    index = LexicalIndex(
        vocabulary,
        weights[:-1],
        offsets_of(frequencies),
        (pairs % documents).astype(position_type(documents)),
        np.minimum(np.bincount(places, counts), MAX_COUNTED).astype(np.uint8),
        lengths.astype(np.uint32),
        Statistics(_K1, _B, float(lengths.mean()) or 1.0, float(weights[-1]), rule=1),
    )
    return index if index.is_valid(documents) else None


def _divides(offsets: NDArray[Any], size: int) -> bool:
    """Return whether offsets divide `size` items into rows: from 0 to `size`, never falling."""
    return len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == size and bool((np.diff(offsets) >= 0).all())
