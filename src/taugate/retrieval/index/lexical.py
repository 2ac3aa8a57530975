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
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from taugate.errors import ReleaseError
from taugate.retrieval.index.words import terms
from taugate.retrieval.vectors.queries import Terms
from taugate.retrieval.vectors.similarity import Float32
from taugate.storage.tensors import map_tensors, tensor_bytes

Float64 = NDArray[np.float64]
Unsigned = NDArray[np.unsignedinteger[Any]]
Positions = NDArray[np.int64]

# Trotman, Puurula and Burgess, "Improvements to BM25 and Language Models Examined", ADCS 2014: the best on average.
# They were better than 1.2 and 0.75 on two of three data sets here.
K1, B = 0.9, 0.4
_MAX_COUNTED = 255  # cap of a term's count in a document; further occurrences hardly add to its weight
_ARRAYS = ("vocabulary", "idf", "offsets", "documents", "counts", "lengths")


class Statistics(NamedTuple):
    """The statistics of a corpus that a share depends on, besides the weights of its terms.

    Attributes:
        k1: Saturation of a term's count.
        b: Share of the length normalisation, 0…1.
        mean_length: Mean number of words in a document.
        unseen_idf: Weight of a term that no document has.
    """

    k1: float
    b: float
    mean_length: float
    unseen_idf: float


class TermScores(NamedTuple):
    """The BM25 weights of a query's terms, summed by document.

    Attributes:
        scores: (N,) float64 sums of the added terms; divided by `total`, they are shares.
        total: Largest sum that any document could reach.
        omitted: Largest sum that the terms which were not added could reach; 0 if all were added.
    """

    scores: Float64
    total: float
    omitted: float


@dataclass(frozen=True, eq=False)
class LexicalIndex:
    """The documents of each term, for N documents with V distinct terms and P pairs of a term and a document.

    Attributes:
        vocabulary: (V,) uint32 ascending terms.
        idf: (V,) float32 weights of the terms.
        offsets: (V + 1,) uint32 or uint64 start of every term's documents, then P.
        documents: (P,) uint16 or uint32 positions of the documents, ascending for each term.
        counts: (P,) uint8 counts of the term in the document.
        lengths: (N,) uint32 numbers of words in the documents.
        statistics: Statistics of the corpus.
    """

    vocabulary: Terms
    idf: Float32
    offsets: Unsigned
    documents: Unsigned
    counts: NDArray[np.uint8]
    lengths: NDArray[np.uint32]
    statistics: Statistics = field(repr=False)

    @classmethod
    def of(cls, texts: Iterable[str], k1: float = K1, b: float = B) -> Self:
        """Index texts, given in the order of the documents' positions.

        Args:
            texts: Texts of the N documents, N ≥ 1.
            k1: Saturation of a term's count, at least 0.
            b: Share of the length normalisation, 0…1.
        """
        distinct, counts, sizes, lengths = [], [], [], []
        for text in texts:
            text_terms = terms(text)
            own_terms, own_counts = np.unique(text_terms, return_counts=True)
            distinct.append(own_terms)
            counts.append(np.minimum(own_counts, _MAX_COUNTED).astype(np.uint8))
            sizes.append(len(own_terms))
            lengths.append(len(text_terms))
        all_terms = np.concatenate(distinct)
        owners = np.repeat(np.arange(len(sizes), dtype=_position_type(len(sizes))), sizes)
        order = np.argsort(all_terms, kind="stable")
        vocabulary, frequencies = np.unique(all_terms, return_counts=True)
        weights = idf(np.append(frequencies, 0), len(sizes))
        statistics = Statistics(k1, b, sum(lengths) / len(lengths) or 1.0, float(weights[-1]))
        return cls(
            vocabulary,
            weights[:-1],
            _offsets(frequencies),
            np.asarray(owners[order], dtype=owners.dtype),
            np.concatenate(counts)[order],
            np.array(lengths, dtype=np.uint32),
            statistics,
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def _saturation(self) -> Float64:
        """Count at which a term weighs half of its idf, k1·((1 − b) + b·dl/avdl), by document, (N,)."""
        k1, b, mean_length, _ = self.statistics
        return k1 * ((1 - b) + b * self.lengths.astype(np.float64) / mean_length)

    @cached_property
    def _frequencies(self) -> Positions:
        """Numbers of documents with the terms, (V,)."""
        return np.diff(self.offsets.astype(np.int64)).astype(np.int64)

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
        scores = np.zeros(len(positions))
        saturation = self._saturation[positions]
        sought = positions.astype(self.documents.dtype)
        for code in codes:
            having, counts = self._row(code)
            places = np.minimum(np.searchsorted(having, sought), len(having) - 1)
            times = np.where(having[places] == sought, counts[places], np.uint8(0)).astype(np.float64)
            scores += float(self.idf[code]) * times / (saturation + times)
        return share_of(scores, total)

    def range_shares(self, query_terms: Terms, first: int, stop: int) -> Float32:
        """Return the shares of one query and the documents at positions first…stop − 1, (stop − first,) float32.

        They equal `shares` to the bit, and are faster to compute for many documents in a row.

        Args:
            query_terms: Result of `words.query_terms`.
            first: Position of the first document.
            stop: Position after the last document, above `first`.
        """
        codes, total = self._codes(query_terms)
        scores = np.zeros(stop - first)
        for code in codes:
            having, counts = self._row(code)
            start = np.searchsorted(having, having.dtype.type(first))
            row = slice(start, start + np.searchsorted(having[start:], having.dtype.type(stop - 1), side="right"))
            documents, times = having[row].astype(np.int64), counts[row].astype(np.float64)
            scores[documents - first] += float(self.idf[code]) * times / (self._saturation[documents] + times)
        return share_of(scores, total)

    def term_scores(self, query_terms: Terms, max_postings: int | None = None) -> TermScores:
        """Sum the weights of a query's terms for all documents, the rarest terms first.

        If all terms are added, `share_of` the sums equals `shares` to the bit.

        Args:
            query_terms: Result of `words.query_terms`.
            max_postings: Terms are added while their documents are at most this many in sum; None adds all.
        """
        codes, total = self._codes(query_terms)
        rarest = np.array(codes, dtype=np.int64)
        omitted = 0.0
        if max_postings is not None and codes:
            rarest = rarest[np.argsort(self._frequencies[rarest], kind="stable")]
            count = int(np.searchsorted(np.cumsum(self._frequencies[rarest]), max_postings, side="right"))
            omitted = math.fsum(float(self.idf[code]) for code in rarest[count:].tolist())
            rarest = np.sort(rarest[:count])  # in the order of `shares`
        scores = np.zeros(len(self))
        for code in rarest.tolist():
            having, counts = self._row(code)
            times = counts.astype(np.float64)
            scores[having] += float(self.idf[code]) * times / (self._saturation[having] + times)
        return TermScores(scores, total, omitted)

    def _row(self, code: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Return the documents of a term and its counts in them."""
        row = slice(int(self.offsets[code]), int(self.offsets[code + 1]))
        return self.documents[row], self.counts[row]

    def _codes(self, query_terms: Terms) -> tuple[list[int], float]:
        """Return the places of the terms in the vocabulary, ascending, and the sum of all weights, at least 1e-9."""
        places = np.searchsorted(self.vocabulary, query_terms)
        places = np.minimum(places, len(self.vocabulary) - 1) if len(self.vocabulary) else places
        known = self.vocabulary[places] == query_terms if len(self.vocabulary) else np.zeros(len(places), np.bool_)
        codes: list[int] = places[known].tolist()
        weights = [float(self.idf[code]) for code in codes]
        return codes, max(math.fsum([*weights, (len(query_terms) - len(codes)) * self.statistics.unseen_idf]), 1e-9)

    def matched(self, query_terms: Terms, position: int) -> NDArray[np.bool_]:
        """Return which terms of a query a document has, (t,) bool."""
        one = np.array([position])
        return np.array(
            [self.shares(query_terms[place:][:1], one)[0] > 0 for place in range(len(query_terms))], np.bool_
        )

    def subset(self, kept: Positions) -> Self:
        """Return the index of some documents with the same statistics, so that their shares stay equal.

        Terms that no kept document has are removed, and count as unseen from then on.

        Args:
            kept: (M,) int64 ascending positions of the documents.
        """
        renumbered = np.full(len(self), -1, dtype=np.int64)
        renumbered[kept] = np.arange(len(kept))
        documents = renumbered[self.documents]
        remains = documents >= 0
        owners = np.repeat(np.arange(len(self.vocabulary)), self._frequencies)[remains]
        frequencies = np.bincount(owners, minlength=len(self.vocabulary))
        occurs = frequencies > 0
        return type(self)(
            self.vocabulary[occurs],
            self.idf[occurs],
            _offsets(frequencies[occurs]),
            documents[remains].astype(_position_type(len(kept))),
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
        if {*arrays} == {*_ARRAYS, "statistics"} and arrays["statistics"].shape == (len(Statistics._fields),):
            statistics = Statistics(*arrays["statistics"].tolist())
            parts: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
            index = cls(statistics=statistics, **parts)
            if index.is_valid(documents):
                return index
        raise ReleaseError(f"{path}: does not hold the words of these documents; calibrate again")

    def is_valid(self, documents: int) -> bool:
        """Return whether the arrays, which may be from an untrusted file, are an index of this many documents."""
        arrays: list[NDArray[Any]] = [getattr(self, name) for name in _ARRAYS]
        types = [np.uint32, np.float32, self.offsets.dtype, _position_type(documents), np.uint8, np.uint32]
        if [array.dtype for array in arrays] != types or any(array.ndim != 1 for array in arrays):
            return False
        terms_count, postings = len(self.vocabulary), len(self.documents)
        sizes = (len(self.lengths), len(self.idf), len(self.offsets), len(self.counts))
        if sizes != (documents, terms_count, terms_count + 1, postings) or self.offsets.dtype.kind != "u":
            return False
        return self._has_valid_statistics() and self._has_valid_postings()

    def _has_valid_statistics(self) -> bool:
        k1, b, mean_length, unseen_idf = self.statistics
        valid = 0 <= k1 < np.inf and 0 <= b <= 1 and 0 < mean_length < np.inf and 0 < unseen_idf < np.inf
        return bool(valid and np.isfinite(self.idf).all() and (self.idf > 0).all())

    def _has_valid_postings(self) -> bool:
        ends = self.offsets.astype(np.int64)
        if ends[0] != 0 or ends[-1] != len(self.documents) or (np.diff(ends) < 1).any():
            return False
        if (self.counts == 0).any() or (self.documents >= len(self)).any():
            return False
        rising = self.documents[1:] > self.documents[:-1]
        rising[ends[1:-1] - 1] = True  # documents may fall between terms
        return bool(rising.all() and (self.vocabulary[1:] > self.vocabulary[:-1]).all())


def share_of(scores: Float64, total: float) -> Float32:
    """Return sums of weights as shares of the largest possible sum, float32 of the same shape."""
    return (scores / total).astype(np.float32)


def idf(frequencies: NDArray[Any], documents: int) -> Float32:
    """Return the weights of terms, float32: ln(1 + (N − n + ½) / (n + ½)), for n of N documents with the term.

    This is Robertson and Zaragoza's w^IDF (§3) with a 1 as in Lucene. Without it, terms in more than half of the
    documents would have negative weights.
    """
    frequency = frequencies.astype(np.float64)
    return np.log1p((documents - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)


def _offsets(frequencies: NDArray[np.int64]) -> Unsigned:
    """Return where the documents of every term begin, then their number, in the smaller type that holds it."""
    ends = np.concatenate([[0], np.cumsum(frequencies)])
    return ends.astype(np.uint32 if ends[-1] < 1 << 32 else np.uint64)


def _position_type(documents: int) -> type[np.uint16 | np.uint32]:
    """Return the type of a document's position."""
    return np.uint16 if documents <= 1 << 16 else np.uint32
