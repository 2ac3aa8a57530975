"""Compares the words of queries and documents: finds queries that copy their answer, and answers that are repeated.

Both make figures wrong. A query that copies its document, as crops do, is easier than a question in a person's own
words, so accuracy is overestimated. If the corpus holds a document twice and only one copy is labelled, the other copy
is a right answer that counts as wrong.

Texts are compared by their shingles, their sequences of three words (Broder, "On the resemblance and containment of
documents", 1997; sequences of three words separate copied from independent text in Lyon, Malcolm and Dickerson,
"Detecting short passages of similar text in large document collections", EMNLP 2001). Omitting one word in ten, as
crops do, changes three shingles in ten, while a longest common sequence would end at the first omission.
"""

import unicodedata
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import regex
from numpy.typing import NDArray

from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.metrics.documents import relevant_passages
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.index.hybrid import vector_index
from taugate.retrieval.index.top_k import Index
from taugate.retrieval.index.words import UNSPACED

Shingles = NDArray[np.uint64]

# A query copies its document if this share of its shingles occurs in it. On the public sets on which it was chosen, it
# is reached by 94 % of the crops of six words or more, and by 7 % of the human queries at most
# (docs/research/label-checks.md).
COPIED = 0.6
# Fewer words are a name or a phrase that any person would take from the document.
MIN_WORDS = 6
# Two documents repeat each other if they share so much of all their shingles. It is the limit of near-duplicates in
# Lee et al., "Deduplicating Training Data Makes Language Models Better", ACL 2022, §4.2.
REPEATED_TEXT = 0.8
_WORDS = 3  # words in a shingle
# Nearest neighbours that are compared word for word, in addition to the document itself.
_NEIGHBOURS = 5
# If a text has a smaller share of the other's bytes, they cannot share so many shingles unless the words are unusual.
_MIN_LENGTH_RATIO = 0.7
_MAX_CACHED = 20_000  # texts whose shingles are kept in memory, about a kilobyte each
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ divided by the golden ratio, as in Fibonacci hashing
# Words as in crops: in a script without spaces between words, every letter is a word.
_WORD = regex.compile(rf"(?V1){UNSPACED}\p{{M}}*|[\w--{UNSPACED}]+")


@dataclass(frozen=True)
class RepeatedAnswer:
    """A query whose relevant document has a near-duplicate in the corpus.

    Attributes:
        row: Row of the query among the answerable ones.
        passage: Position of the relevant passage.
        copy: Position of its near-duplicate.
        labelled: Whether the copy is labelled relevant, too.
    """

    row: int
    passage: int
    copy: int
    labelled: bool


@dataclass(frozen=True)
class Wording:
    """Copied and repeated texts in a query set.

    Attributes:
        copies: (c,) rows of the answerable queries that copy a relevant passage, ascending.
        repeated: One entry for each query whose relevant passage has a near-duplicate in another document, an
            unlabelled near-duplicate if there is one.
    """

    copies: NDArray[np.int64]
    repeated: list[RepeatedAnswer]

    @property
    def unlabelled(self) -> list[RepeatedAnswer]:
        """Repeated answers of which the copy is not labelled."""
        return [answer for answer in self.repeated if not answer.labelled]


def compare_wording(dataset: Dataset, encoded: EncodedTexts, index: Index) -> Wording:
    """Find the queries that copy a relevant passage, and those whose relevant passage the corpus repeats.

    Args:
        dataset: Labelled queries and documents.
        encoded: Vectors of the data set, as they are searched.
        index: Index of the passages, which gives the candidates for near-duplicates.
    """

    @lru_cache(maxsize=_MAX_CACHED)
    def passage(position: int) -> Shingles:
        return shingles(dataset.documents[position].encoded_text)

    relevant = [passages.tolist() for passages in relevant_passages(dataset.answerable, dataset.documents.parents)]
    copies = []
    for row, (query, passages) in enumerate(zip(dataset.answerable, relevant, strict=True)):
        if len(compared_words(query.text)) < MIN_WORDS:
            continue
        query_shingles = shingles(query.text)
        if any(containment(query_shingles, passage(position)) >= COPIED for position in passages):
            copies.append(row)
    return Wording(np.array(copies, dtype=np.int64), _repeated(dataset, encoded, index, relevant, passage))


def _repeated(
    dataset: Dataset, encoded: EncodedTexts, index: Index, relevant: list[list[int]], passage: Callable[[int], Shingles]
) -> list[RepeatedAnswer]:
    distinct = sorted({position for passages in relevant for position in passages})
    vectors = encoded.documents[np.array(distinct, dtype=np.int64)]
    nearest = vector_index(index).search(vectors, min(1 + _NEIGHBOURS, len(dataset.documents))).positions
    parents = dataset.documents.parents
    compared = np.union1d(distinct, nearest)
    lengths = dict(zip(compared.tolist(), encoded.lengths[compared].tolist(), strict=True))
    documents = np.arange(len(dataset.documents)) if parents is None else parents
    copies: dict[int, list[int]] = {}
    for position, neighbours in zip(distinct, nearest.tolist(), strict=True):
        candidates = [
            neighbour
            for neighbour in neighbours
            if documents[neighbour] != documents[position]
            and min(lengths[neighbour], lengths[position])
            >= _MIN_LENGTH_RATIO * max(lengths[neighbour], lengths[position])
        ]
        same = [
            candidate for candidate in candidates if resemblance(passage(position), passage(candidate)) >= REPEATED_TEXT
        ]
        if same:
            copies[position] = same
    repeated = []
    for row, passages in enumerate(relevant):
        labelled = {int(documents[position]) for position in passages}
        pairs = [
            RepeatedAnswer(row, position, copy, int(documents[copy]) in labelled)
            for position in passages
            for copy in copies.get(position, [])
        ]
        if pairs:
            repeated.append(min(pairs, key=lambda pair: pair.labelled))
    return repeated


def compared_words(text: str) -> list[str]:
    """Split a text into words, without marks and in one case (NFKC and case folding)."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> Shingles:
    """Return the distinct shingles of a text, (s,) uint64 hashes, ascending; none for fewer than three words."""
    tokens = compared_words(text)
    if len(tokens) < _WORDS:
        return np.empty(0, np.uint64)
    hashes = (zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in tokens)
    numbers = np.fromiter(hashes, np.uint64, len(tokens))
    return np.unique((numbers[:-2] * _ODD + numbers[1:-1]) * _ODD + numbers[2:])


def containment(part: Shingles, text: Shingles) -> float:
    """Return the share of the shingles of `part` that are in `text`; 0 if `part` has none."""
    return _common(part, text) / len(part) if len(part) else 0.0


def resemblance(left: Shingles, right: Shingles) -> float:
    """Return the share of the shingles of two texts that both have (Jaccard's index); 0 if neither has any."""
    common = _common(left, right)
    return common / (len(left) + len(right) - common) if common else 0.0


def _common(left: Shingles, right: Shingles) -> int:
    return len(np.intersect1d(left, right, assume_unique=True))
