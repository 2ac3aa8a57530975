"""Judgements are of documents, and what is searched are passages: this is where the two meet.

A corpus may hold a document in chunks. A search then returns chunks, each of them a passage, and several may be of one
document. They find it once: at the rank of its first relevant chunk. `parents`, where a function takes it, is
`DocumentStore.parents`: (N,) int32, for each passage the position of the first chunk of its document, or None where
the corpus has no chunks and every passage is a document.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.policy.policy import Mask

Parents = NDArray[np.int32] | None
Positions = NDArray[np.int64]


@dataclass(frozen=True)
class ResultDocuments:
    """The documents of q queries' results, K each, in a corpus that has chunks.

    Attributes:
        numbers: (q, K) int32, the position of the first chunk of each result's document.
        labelled: (q, K), whether the qrels say that the result is relevant or not. They say neither of the further
            chunks of a document that they name as a whole: the best one is the hit, and the others may or may not
            answer the query.
    """

    numbers: NDArray[np.int32]
    labelled: Mask

    @classmethod
    def of(
        cls,
        queries: Sequence[LabelledQuery],
        positions: Positions,
        grades: NDArray[np.int64],
        parents: NDArray[np.int32],
    ) -> Self:
        """Look up the documents of results.

        Args:
            queries: q of them.
            positions: (q, K) of their results, best first.
            grades: (q, K), as `grades_of` returns them.
            parents: (N,) int32.
        """
        numbers, relevant = parents[positions], grades >= 1
        rows = zip(queries, numbers.tolist(), strict=True)
        named = [[document in (query.chunks or ()) for document in row] for query, row in rows]
        further = relevant & ~first_of_document(numbers, relevant)
        return cls(numbers, ~further | np.array(named, dtype=np.bool_).reshape(numbers.shape))

    def take(self, rows: Positions) -> Self:
        """Take the queries at `rows`, in that order."""
        return type(self)(self.numbers[rows], self.labelled[rows])


def grades_of(queries: Sequence[LabelledQuery], positions: Positions, parents: Parents) -> NDArray[np.int64]:
    """Look up the grade of each result's document, 0 where the result is not a relevant passage of it.

    Args:
        queries: q of them.
        positions: (q, K) of their results.
        parents: Of the corpus.

    Returns:
        (q, K) int64.
    """
    _check_corpus(queries, parents)
    documents = positions if parents is None else parents[positions]
    rows = zip(queries, positions.tolist(), documents.tolist(), strict=True)
    grades = [[query.grade(*result) for result in zip(found, of, strict=True)] for query, found, of in rows]
    return np.array(grades, dtype=np.int64).reshape(positions.shape)


def first_of_document(documents: NDArray[np.int32], shown: Mask) -> Mask:
    """Say which of the results that are shown are the first of their document, (q, K).

    Args:
        documents: (q, K), equal numbers in a row for chunks of one document.
        shown: (q, K), which results are looked at.
    """
    order = np.argsort(documents, axis=1, kind="stable")  # document by document, each by rank
    numbers, counted = np.take_along_axis(documents, order, axis=1), np.take_along_axis(shown, order, axis=1)
    total = np.cumsum(counted, axis=1)
    begins = np.ones(documents.shape, dtype=np.bool_)
    begins[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    before = np.maximum.accumulate(np.where(begins, total - counted, 0), axis=1)  # shown of the documents before
    first = np.empty(shown.shape, dtype=np.bool_)
    np.put_along_axis(first, order, counted & (total - before == 1), axis=1)
    return first


def relevant_passages(queries: Sequence[LabelledQuery], parents: Parents) -> list[Positions]:
    """Return the positions of every passage that is relevant to each query, (p,) int64 each.

    Args:
        queries: q of them.
        parents: Of the corpus.
    """
    _check_corpus(queries, parents)
    if parents is None:
        return [np.array([*query.relevant], dtype=np.int64) for query in queries]
    by_document = np.argsort(parents, kind="stable")
    ordered = parents[by_document]
    found = []
    for query in queries:
        named = query.chunks or {}
        whole = [document for document in query.relevant if document not in named]
        starts, ends = (np.searchsorted(ordered, whole, side=side).tolist() for side in ("left", "right"))
        parts = [by_document[start:end] for start, end in zip(starts, ends, strict=True)]
        parts += [np.array(chunks, dtype=np.int64) for chunks in named.values()]
        found.append(np.concatenate([np.arange(0), *parts]))
    return found


def chance_of_a_hit(queries: Sequence[LabelledQuery], parents: Parents, passages: int, k: int) -> float:
    """Return the accuracy that random results would have if each query had one of its relevant documents.

    It is K/N where each of these is one passage. A document of c relevant chunks is among K random passages with the
    probability 1 − Π (N − c − i) / (N − i), i = 0 … K − 1: an article in a hundred chunks is often found by luck.

    Args:
        queries: One answerable query or more.
        parents: Of the corpus.
        passages: N.
        k: K.
    """
    _check_corpus(queries, parents)
    if parents is None:
        return min(1.0, k / passages)
    sizes = np.bincount(parents, minlength=passages)
    drawn = np.arange(min(k, passages))
    chances = []
    for query in queries:
        named = query.chunks or {}
        relevant = np.array([len(named.get(each, ())) or sizes[each] for each in query.relevant])
        missed = np.prod(np.maximum(passages - relevant[:, None] - drawn, 0) / (passages - drawn), axis=1)
        chances.append(1 - missed.mean())
    return float(np.mean(chances))


def one_passage_each(parents: NDArray[np.int32]) -> Positions:
    """Return the position of the first passage of every document, ascending.

    Args:
        parents: (N,) int32.
    """
    return np.flatnonzero(parents == np.arange(len(parents)))


def _check_corpus(queries: Sequence[LabelledQuery], parents: Parents) -> None:
    """Keep labels of documents from being read as labels of passages, which would give wrong figures silently."""
    if parents is None and any(query.chunks is not None for query in queries):
        raise AssertionError("queries of a corpus in chunks are judged without its `parents`")
