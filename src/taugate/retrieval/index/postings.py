"""The documents of each term of a corpus as arrays, memory-mapped from one file of a release."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from taugate.errors import ReleaseError
from taugate.policy.arrays import Float64, Terms
from taugate.retrieval.index.words import RULE, WordRule, characters, term_of, terms
from taugate.storage.tensors import map_tensors, tensor_bytes

Unsigned = NDArray[np.unsignedinteger[Any]]
Positions = NDArray[np.int64]

# Trotman, Puurula and Burgess, "Improvements to BM25 and Language Models Examined", ADCS 2014: the best on average.
# They were better than 1.2 and 0.75 on two of three data sets here.
K1, B = 0.9, 0.4
MAX_COUNTED = 255  # cap of a term's count in a document; further occurrences hardly add to its weight
# Largest weight of a term in a release: ln(1 + 2N + 1) of more documents than can be numbered.
_MAX_IDF = 64.0
_ARRAYS = ("vocabulary", "idf", "offsets", "documents", "counts", "lengths")


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
