"""The match of a query's words with its results: how many of its words a result has, and how many one sentence has.

The index of the documents' words tells which words a document has. Sentences are split from the texts of the few
results that may have the best one.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.postings import Float64
from taugate.retrieval.index.words import RULE, WordRule, characters, query_terms, term_of, words

# A sentence ends at a space after an end mark, at a mark of a script without spaces, or at the end of a line. "Mr. X"
# ends one as well, which matters little because sentences only group words.
_SENTENCE_END = re.compile(r"(?<=[.!?…؟।])\s+|[。｡！？]+|\n+")


class ReadableDocuments(Protocol):
    """Documents by position."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> Document: ...


class WordMatch(NamedTuple):
    """The match of a query's words with w documents, as shares, 0…1, of the largest possible match.

    Attributes:
        bm25: (w,) BM25 of the documents.
        idf: (w,) idf of the query's words that the document has.
        best_sentence: Largest idf of the query's words in one sentence of a document.
    """

    bm25: Float64
    idf: Float64
    best_sentence: float


@dataclass(frozen=True, eq=False)
class DocumentWords:
    """The words of N documents.

    Attributes:
        index: Index of the words.
        text: Returns the text of the document at a position.
    """

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
            text: Text of the query.
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


def split_sentences(text: str, rule: WordRule = RULE) -> Iterable[list[str]]:
    """Yield the words of each sentence of a text that has any; see `words.words`."""
    return filter(None, (words(sentence, rule) + characters(sentence, rule) for sentence in _SENTENCE_END.split(text)))
