"""Compare the words of queries and documents: which queries copy their answer, and which answers the corpus repeats.

Both make figures wrong. A query that copies its document, as crops do, is easier than a question in a person's own
words, so accuracy looks better than it is. And where a document stands in the corpus twice but only one copy is
labelled, the other is a right answer that counts as a wrong one.

Texts are compared by their shingles, the sequences of three words that they hold (Broder, "On the resemblance and
containment of documents", 1997; words in threes tell copied from independent text in Lyon, Malcolm and Dickerson,
"Detecting short passages of similar text in large document collections", EMNLP 2001). One word in ten that is left out,
as crops do, spoils three shingles in ten; a longest common sequence would end at the first.
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
from taugate.ingestion.queries.crop import UNSPACED
from taugate.retrieval.index.top_k import Searchable

Shingles = NDArray[np.uint64]

# A query copies its document where this share of its shingles stands there. On the public sets where it was chosen, it
# is reached by 94 % of the crops of six words or more, and by 7 % of the human queries at most
# (docs/benchmarks/label-checks.md).
COPIED = 0.6
# Fewer words are a name or a phrase that any person would take from the document.
MIN_WORDS = 6
# Two documents repeat each other where they share so much of all their shingles. It is the limit of near-duplicates in
# Lee et al., "Deduplicating Training Data Makes Language Models Better", ACL 2022, §4.2.
REPEATED_TEXT = 0.8
_WORDS = 3  # of a shingle
# Nearest neighbours that are compared word for word, besides the document itself.
_NEIGHBOURS = 5
# Texts of which one has less than this of the other's bytes cannot share so many shingles, but for odd words.
_SHORTEST = 0.7
_MAX_KEPT = 20_000  # texts whose shingles are kept in memory, about a kilobyte each
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ divided by the golden ratio, as in Fibonacci hashing
# As words are cropped: a letter of a script that puts no spaces between words stands for a word.
_WORD = regex.compile(rf"(?V1){UNSPACED}\p{{M}}*|[\w--{UNSPACED}]+")


@dataclass(frozen=True)
class RepeatedAnswer:
    """A query whose relevant document stands in the corpus once more.

    Attributes:
        row: Of the query among the answerable ones.
        passage: Positions of the relevant passage and of its near-duplicate.
        copy: Positions of the relevant passage and of its near-duplicate.
        labelled: Whether the copy is labelled relevant, too.
    """

    row: int
    passage: int
    copy: int
    labelled: bool


@dataclass(frozen=True)
class Wording:
    """What the words of a query set say of its labels.

    Attributes:
        copies: (c,) rows of the answerable queries that copy a relevant passage, ascending.
        repeated: One entry for each query that has a relevant passage with a near-duplicate in another document, an
            unlabelled one if there is any.
    """

    copies: NDArray[np.int64]
    repeated: list[RepeatedAnswer]

    @property
    def unlabelled(self) -> list[RepeatedAnswer]:
        """The queries of which a copy of the answer is not labelled."""
        return [each for each in self.repeated if not each.labelled]


def compare_wording(dataset: Dataset, encoded: EncodedTexts, index: Searchable) -> Wording:
    """Find the queries that copy a relevant passage, and those whose relevant passage the corpus repeats.

    Args:
        dataset: Labelled queries and documents.
        encoded: Their vectors, as they are searched.
        index: Of the passages, which gives the candidates for near-duplicates.
    """

    @lru_cache(maxsize=_MAX_KEPT)
    def passage(position: int) -> Shingles:
        return shingles(dataset.documents[position].encoded_text)

    relevant = [each.tolist() for each in relevant_passages(dataset.answerable, dataset.documents.parents)]
    copies = []
    for row, (query, passages) in enumerate(zip(dataset.answerable, relevant, strict=True)):
        if len(words(query.text)) < MIN_WORDS:
            continue
        asked = shingles(query.text)
        if any(containment(asked, passage(position)) >= COPIED for position in passages):
            copies.append(row)
    return Wording(np.array(copies, dtype=np.int64), _repeated(dataset, encoded, index, relevant, passage))


def _repeated(
    dataset: Dataset,
    encoded: EncodedTexts,
    index: Searchable,
    relevant: list[list[int]],
    passage: Callable[[int], Shingles],
) -> list[RepeatedAnswer]:
    distinct = sorted({position for passages in relevant for position in passages})
    vectors = encoded.documents[np.array(distinct, dtype=np.int64)]
    nearest = index.search(vectors, min(1 + _NEIGHBOURS, len(dataset.documents))).positions
    parents = dataset.documents.parents
    compared = np.union1d(distinct, nearest)
    lengths = dict(zip(compared.tolist(), encoded.lengths[compared].tolist(), strict=True))
    documents = np.arange(len(dataset.documents)) if parents is None else parents
    copies: dict[int, list[int]] = {}
    for position, found in zip(distinct, nearest.tolist(), strict=True):
        others = [
            each
            for each in found
            if documents[each] != documents[position]
            and min(lengths[each], lengths[position]) >= _SHORTEST * max(lengths[each], lengths[position])
        ]
        same = [each for each in others if resemblance(passage(position), passage(each)) >= REPEATED_TEXT]
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


def words(text: str) -> list[str]:
    """Split a text into words, without marks and in one case (NFKC and case folding)."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> Shingles:
    """Return the distinct shingles of a text, (s,) uint64 hashes, ascending; none for fewer than three words."""
    found = words(text)
    if len(found) < _WORDS:
        return np.empty(0, np.uint64)
    numbers = np.fromiter((zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in found), np.uint64, len(found))
    return np.unique((numbers[:-2] * _ODD + numbers[1:-1]) * _ODD + numbers[2:])


def containment(part: Shingles, whole: Shingles) -> float:
    """Return the share of the shingles of `part` that are in `whole`; 0 where `part` has none."""
    return _common(part, whole) / len(part) if len(part) else 0.0


def resemblance(one: Shingles, other: Shingles) -> float:
    """Return the share of all shingles of two texts that both have (Jaccard's index); 0 where neither has any."""
    common = _common(one, other)
    return common / (len(one) + len(other) - common) if common else 0.0


def _common(one: Shingles, other: Shingles) -> int:
    return len(np.intersect1d(one, other, assume_unique=True))
