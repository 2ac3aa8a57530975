"""Maps passages, which are searched, to documents, which are judged.

A corpus may hold a document in chunks. A search then returns chunks, which are passages, and several may belong to one
document. The document counts once, at the rank of its first relevant chunk. The parameter `parents` is always
`DocumentStore.parents`: (N,) int32, for each passage the position of the first chunk of its document, or None if the
corpus has no chunks and every passage is a document.
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
        labelled: (q, K), whether the qrels judge the result. If they name a document as a whole, only its best chunk
            is the hit; its further chunks may or may not answer the query and are not labelled.
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
            queries: q queries.
            positions: (q, K) positions of their results, best first.
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
    """Look up the grade of each result's document, (q, K) int64: 1 or more if the result is a relevant passage.

    It is negative if the document does not answer and gains in NDCG, and 0 otherwise.

    Args:
        queries: q queries.
        positions: (q, K) positions of their results.
        parents: Parents in the corpus.
    """
    _check_corpus(queries, parents)
    documents = positions if parents is None else parents[positions]
    rows = zip(queries, positions.tolist(), documents.tolist(), strict=True)
    grades = [[query.grade(*result) for result in zip(results, owners, strict=True)] for query, results, owners in rows]
    return np.array(grades, dtype=np.int64).reshape(positions.shape)


def first_of_document(documents: NDArray[np.int32], shown: Mask) -> Mask:
    """Select the shown results that are the first of their document, (q, K).

    Args:
        documents: (q, K), equal numbers in a row for chunks of one document.
        shown: (q, K), the results to consider.
    """
    order = np.argsort(documents, axis=1, kind="stable")  # by document, then by rank
    numbers, counted = np.take_along_axis(documents, order, axis=1), np.take_along_axis(shown, order, axis=1)
    total = np.cumsum(counted, axis=1)
    begins = np.ones(documents.shape, dtype=np.bool_)
    begins[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    before = np.maximum.accumulate(np.where(begins, total - counted, 0), axis=1)  # shown results of earlier documents
    first = np.empty(shown.shape, dtype=np.bool_)
    np.put_along_axis(first, order, counted & (total - before == 1), axis=1)
    return first


def relevant_passages(queries: Sequence[LabelledQuery], parents: Parents) -> list[Positions]:
    """Return for each query the positions of its relevant passages, (p,) int64."""
    _check_corpus(queries, parents)
    if parents is None:
        return [np.array([*query.relevant], dtype=np.int64) for query in queries]
    by_document = np.argsort(parents, kind="stable")
    ordered = parents[by_document]
    relevant = []
    for query in queries:
        named = query.chunks or {}
        documents = [document for document in query.relevant if document not in named]
        starts, ends = (np.searchsorted(ordered, documents, side=side).tolist() for side in ("left", "right"))
        parts = [by_document[start:end] for start, end in zip(starts, ends, strict=True)]
        parts += [np.array(chunks, dtype=np.int64) for chunks in named.values()]
        relevant.append(np.concatenate([np.arange(0), *parts]))
    return relevant


def chance_of_a_hit(queries: Sequence[LabelledQuery], parents: Parents, passages: int, k: int) -> float:
    """Return the accuracy of random results if each query had one of its relevant documents.

    It is K/N if every document is one passage. A document of c relevant chunks is among K random passages with the
    probability 1 − Π (N − c − i) / (N − i), i = 0 … K − 1: an article in a hundred chunks is often found by luck.

    Args:
        queries: Answerable queries, at least one.
        parents: Parents in the corpus.
        passages: N, the number of passages in the corpus.
        k: K, the number of results.
    """
    _check_corpus(queries, parents)
    if parents is None:
        return min(1.0, k / passages)
    sizes = np.bincount(parents, minlength=passages)
    drawn = np.arange(min(k, passages))
    chances = []
    for query in queries:
        named = query.chunks or {}
        relevant = np.array([len(named.get(document, ())) or sizes[document] for document in query.relevant])
        missed = np.prod(np.maximum(passages - relevant[:, None] - drawn, 0) / (passages - drawn), axis=1)
        chances.append(1 - missed.mean())
    return float(np.mean(chances))


def _check_corpus(queries: Sequence[LabelledQuery], parents: Parents) -> None:
    """Prevent document labels from being read as passage labels, which would give wrong figures silently."""
    if parents is None and any(query.chunks is not None for query in queries):
        raise AssertionError("queries of a corpus in chunks are judged without its `parents`")
