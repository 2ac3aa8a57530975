"""An inverted index of the documents' words, and the lexical share of a query and a document on a fixed scale.

The share is BM25(query, document) over the largest BM25 that any document could reach for the query, so it is in 0…1
and depends on the query, the document and statistics of the corpus alone: not on the list, the batch or the shard. A
threshold on a sum with it therefore keeps its meaning, unlike one on ranks or on scores that are scaled by list.

A share has the same bits on every machine: the weights of the terms are stored, and every share is a sum in float64, in
the order of the terms' numbers, that is rounded once.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from taugate.errors import ReleaseError
from taugate.retrieval.index.words import RULE, WordRule, terms
from taugate.retrieval.vectors.queries import Terms
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import map_tensors, tensor_bytes

Float64 = NDArray[np.float64]
Unsigned = NDArray[np.unsignedinteger[Any]]
Positions = NDArray[np.int64]

# Trotman, Puurula and Burgess, "Improvements to BM25 and Language Models Examined", ADCS 2014: the best on average.
# They were better than 1.2 and 0.75 on two of three data sets here.
K1, B = 0.9, 0.4
MAX_COUNTED = 255  # cap of a term's count in a document; further occurrences hardly add to its weight
# Largest weight of a term in a release: ln(1 + 2N + 1) of more documents than can be numbered.
_MAX_IDF = 64.0
# More than the rounding of a share and of sums in another order.
_ROUNDING = 1e-6
# Terms are read even if bounds could replace them while their documents are at most this many: about 0.1 ms.
_FEW_POSTINGS = 1 << 13
# Postings are sorted by document if they are fewer than one in this many documents, and counted in an array otherwise.
_SORTED_ONE_IN = 16
_ARRAYS = ("vocabulary", "idf", "offsets", "documents", "counts", "lengths")


class Statistics(NamedTuple):
    """The statistics of a corpus that a share depends on, besides the weights of its terms.

    Attributes:
        k1: Saturation of a term's count.
        b: Share of the length normalisation, 0…1.
        mean_length: Mean number of words in a document.
        unseen_idf: Weight of a term that no document has.
        rule: Rule by which texts are split into words.
    """

    k1: float
    b: float
    mean_length: float
    unseen_idf: float
    rule: WordRule = RULE


class TermScores(NamedTuple):
    """The BM25 weights of a query's terms, summed by document.

    Attributes:
        scores: (N,) float64 sums; divided by `total`, they are shares.
        total: Largest sum that any document could reach.
    """

    scores: Float64
    total: float


@dataclass(frozen=True, eq=False)
class Candidates:
    """Documents that may reach a share of a query.

    Attributes:
        positions: (m,) int64, ascending by default.
        shares: (m,) float64 upper bounds of their shares.
        complete: Whether all documents that may reach the share are among them.
    """

    positions: Positions
    shares: Float64
    complete: bool

    def __len__(self) -> int:
        return len(self.positions)

    def most(self, count: int) -> Self:
        """Return the candidates with the highest bounds, at most `count` of them, in descending order."""
        best = np.arange(len(self)) if len(self) <= count else np.argpartition(-self.shares, count)[:count]
        best = best[np.argsort(-self.shares[best])]
        return type(self)(self.positions[best], self.shares[best], self.complete)


@dataclass(frozen=True, eq=False)
class LexicalIndex:
    """The documents of each term, for N documents with V distinct terms and P pairs of a term and a document.

    Attributes:
        vocabulary: (V,) uint32 ascending terms.
        idf: (V,) float32 weights of the terms; float64 in releases before scores had a lexical part.
        offsets: (V + 1,) uint32 or uint64 start of every term's documents, then P.
        documents: (P,) uint16 or uint32 positions of the documents, ascending for each term.
        counts: (P,) uint8 counts of the term in the document.
        lengths: (N,) uint32 numbers of words in the documents.
        statistics: Statistics of the corpus.
    """

    vocabulary: Terms
    idf: NDArray[np.floating[Any]]
    offsets: Unsigned
    documents: Unsigned
    counts: NDArray[np.uint8]
    lengths: NDArray[np.uint32]
    statistics: Statistics = field(repr=False)

    @classmethod
    def of(cls, texts: Iterable[str], k1: float = K1, b: float = B, rule: WordRule = RULE) -> Self:
        """Index texts, given in the order of the documents' positions.

        Args:
            texts: Texts of the N documents, N ≥ 1.
            k1: Saturation of a term's count, at least 0.
            b: Share of the length normalisation, 0…1.
            rule: Rule by which texts are split into words.
        """
        distinct, counts, sizes, lengths = [], [], [], []
        for text in texts:
            text_terms = terms(text, rule)
            own_terms, own_counts = np.unique(text_terms, return_counts=True)
            distinct.append(own_terms)
            counts.append(np.minimum(own_counts, MAX_COUNTED).astype(np.uint8))
            sizes.append(len(own_terms))
            lengths.append(len(text_terms))
        all_terms = np.concatenate(distinct)
        owners = np.repeat(np.arange(len(sizes), dtype=position_type(len(sizes))), sizes)
        order = np.argsort(all_terms, kind="stable")
        vocabulary, frequencies = np.unique(all_terms, return_counts=True)
        weights = idf(np.append(frequencies, 0), len(sizes)).astype(np.float32)
        statistics = Statistics(k1, b, sum(lengths) / len(lengths) or 1.0, float(weights[-1]), rule)
        return cls(
            vocabulary,
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
    def _saturation(self) -> Float64:
        """Count at which a term weighs half of its idf, k1·((1 − b) + b·dl/avdl), by document, (N,)."""
        k1, b, mean_length, *_ = self.statistics
        return k1 * ((1 - b) + b * self.lengths.astype(np.float64) / mean_length)

    def shares(self, query_terms: Terms, positions: Positions) -> Float32:
        """Return the shares of one query and some documents, (c,) float32.

        The weight of a term in a document is idf · tf / (k1·((1 − b) + b·dl/avdl) + tf) (Robertson and Zaragoza, "The
        Probabilistic Relevance Framework: BM25 and Beyond", 2009, eq. 3.15), which is below its idf; the factor k1 + 1
        of BM25 cancels. A query without terms has shares of 0.

        Args:
            query_terms: Result of `words.query_terms`.
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
        np.divide(weights, self._saturation[positions] + times, out=weights, where=times > 0)
        return _in_order(weights)

    def term_scores(self, query_terms: Terms) -> TermScores:
        """Sum the weights of a query's terms for all documents; `share_of` the sums equals `shares` to the bit.

        Args:
            query_terms: Result of `words.query_terms`.
        """
        codes, total = self._codes(query_terms)
        return TermScores(_sums(*self._postings(codes), len(self)), total)

    def range_shares(self, query_terms: Terms, first: int, stop: int) -> Float32:
        """Return the shares of one query and the documents at positions first…stop − 1, (stop − first,) float32.

        They equal `shares` to the bit, and are faster to compute for many documents in a row.

        Args:
            query_terms: Result of `words.query_terms`.
            first: Position of the first document.
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
            scores[documents - first] += weights / (self._saturation[documents] + times)
        return share_of(scores, total)

    def reaching(self, query_terms: Terms, share: float, max_postings: int | None = None) -> Candidates:
        """Return the documents with a term of a query that may have at least a share of it.

        The rarest terms are read. Other terms count as if each document had them any number of times, and are left out
        once they cannot reach the share by themselves, so the most frequent ones are rarely read (Turtle and Flood,
        "Query Evaluation: Strategies and Optimizations", Information Processing & Management 31(6), 1995).

        Args:
            query_terms: Result of `words.query_terms`.
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
        return Candidates(positions[may], bounds[may] / total, complete)

    def _postings(self, codes: Positions) -> tuple[Unsigned, Float64]:
        """Return the documents of some terms and their weights in them, (p,) each, in the order of the terms."""
        if not len(codes):
            return self.documents[:0], np.empty(0)
        rows = [slice(*row) for row in zip(self.offsets[codes].tolist(), self.offsets[codes + 1].tolist(), strict=True)]
        documents = np.concatenate([self.documents[row] for row in rows])
        times = np.concatenate([self.counts[row] for row in rows]).astype(np.float64)
        idf = np.repeat(self.idf[codes].astype(np.float64), self._frequencies(codes))
        return documents, idf * times / (self._saturation[documents] + times)

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
            query_terms: Result of `words.query_terms`.
            positions: (c,) int64 positions of the documents.
        """
        codes, _ = self._codes(query_terms)
        found = self.vocabulary[codes]
        return [set(found[row > 0].tolist()) for row in self._counts(codes, positions).T]

    def subset(self, kept: Positions) -> Self:
        """Return the index of some documents with the same statistics.

        Terms that no kept document has are removed and count as unseen from then on, with a larger weight. The shares
        of queries without such terms stay equal to the bit.

        Args:
            kept: (M,) int64 ascending positions of the documents.
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
        """Map the file that `save` wrote into memory.

        Args:
            path: File with the index.
            documents: Number of documents.

        Raises:
            ReleaseError: If the file does not hold a lexical index of this many documents.
        """
        arrays = map_tensors(path)
        values = arrays.pop("statistics", np.empty(0))
        complete = {*arrays} == {*_ARRAYS} and values.dtype == np.float64 and values.shape == (len(Statistics._fields),)
        if complete and values[-1] in get_args(WordRule):
            k1, b, mean_length, unseen_idf, rule = values.tolist()
            statistics = Statistics(k1, b, mean_length, unseen_idf, 1 if rule == 1 else RULE)
            index = cls(statistics=statistics, **arrays)
            if index.is_valid(documents):
                return index
        raise ReleaseError(f"{path}: does not hold the words of these documents; calibrate again")

    def is_valid(self, documents: int) -> bool:
        """Return whether the arrays, which may be from an untrusted file, are an index of this many documents."""
        arrays: list[NDArray[Any]] = [getattr(self, name) for name in _ARRAYS]
        count, postings = self.vocabulary.size, self.documents.size
        types = [np.uint32, self.idf.dtype, _offset_type(postings), position_type(documents), np.uint8, np.uint32]
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
            return self.idf.dtype.kind == "f" and bool(np.isfinite(self._saturation).all())

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


def idf(frequencies: NDArray[Any], documents: int) -> Float64:
    """Return the weights of terms, float64: ln(1 + (N − n + ½) / (n + ½)), for n of N documents with the term.

    This is Robertson and Zaragoza's w^IDF (§3) with a 1 as in Lucene. Without it, terms in more than half of the
    documents would have negative weights.
    """
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
