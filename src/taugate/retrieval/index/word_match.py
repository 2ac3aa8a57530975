"""The match of a query's words with its results: how many of its words a result has, and how many one sentence has.

The index of the documents' words tells which words a document has. Sentences are split from the texts of the few
results that may have the best one.

Reads the words of releases from before scores had a lexical part, which stored them by sentence. Their idf was in
float64, their words were those of rule 1, and k1 and b were Lucene's. Scores by these words stay equal as long as all
three are kept.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from taugate.policy.abstention import ReadWords, WordMatch, Words
from taugate.policy.arrays import Float64
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.postings import MAX_COUNTED, Statistics, idf, offsets_of, position_type
from taugate.retrieval.index.words import RULE, WordRule, characters, query_terms, term_of, words
from taugate.storage.tensors import Arrays

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
