"""Judges what a search found for labelled queries, by documents: grades, and rankings without the query itself.

A corpus may hold a document in chunks. A search then returns chunks, which are passages, and several may belong to one
document. The document counts once, at the rank of its first relevant chunk. The parameter `parents` is always
`DocumentStore.parents`: (N,) int32, for each passage the position of the first chunk of its document, or None if the
corpus has no chunks and every passage is a document.

Searches leave a query out of its own results, in data sets whose queries are documents of the corpus. The parameter
`own_passages` holds for each of q queries the positions of the passages that are the query itself
(`LabelledQuery.own`). It is empty unless the corpus holds the query under the same id.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.acceptance import DEPTH, RankingOutcomes
from taugate.evidence.divisions import Positions
from taugate.evidence.ranking import (
    JudgedQueries,
    Parents,
    ResultDocuments,
    accuracy,
    first_of_document,
    ideal_dcg,
    ndcg,
)
from taugate.policy.arrays import Float32, QueryVectors
from taugate.retrieval.index.top_k import Searchable, TopK

OwnPassages = Sequence[tuple[int, ...]]
_PAIRS = 8192  # pairs of a query and a relevant passage scored at a time: a copy of 12 MB at 384 dimensions


def own_passages_of(queries: Iterable[LabelledQuery]) -> OwnPassages:
    """Return for each query the passages that are the query itself."""
    return [query.own_passages for query in queries]


def max_own_passages(own_passages: OwnPassages) -> int:
    """Return how many additional passages a search has to find so that enough remain for every query."""
    return max(map(len, own_passages), default=0)


def search_excluding_own(index: Searchable, own_passages: OwnPassages, vectors: QueryVectors, k: int) -> TopK:
    """Search every query for passages other than itself.

    Args:
        own_passages: Passages that are the query itself, by query.
        vectors: (q, d) float32.

    Returns:
        (q, min(k, N - `max_own_passages`)) results.
    """
    return exclude_own(own_passages, index.search(vectors, k + max_own_passages(own_passages)))


def exclude_own(own_passages: OwnPassages, top: TopK) -> TopK:
    """Leave each query out of its own (q, c) results; (q, c - `max_own_passages`) remain."""
    if not max_own_passages(own_passages):
        return top
    order = _others_first(own_passages, top.positions)
    return TopK(np.take_along_axis(top.scores, order, axis=1), np.take_along_axis(top.positions, order, axis=1))


def positions_excluding_own(own_passages: OwnPassages, positions: Positions) -> Positions:
    """Leave each query out of the (q, c) positions of its own results; (q, c - `max_own_passages`) remain."""
    return (
        np.take_along_axis(positions, _others_first(own_passages, positions), axis=1)
        if max_own_passages(own_passages)
        else positions
    )


def _others_first(own_passages: OwnPassages, positions: Positions) -> Positions:
    """Return the columns of other passages, in their order; (q, c - `max_own_passages`)."""
    is_own = np.zeros(positions.shape, dtype=np.bool_)
    for row, passages in enumerate(own_passages):
        if passages:
            is_own[row] = np.isin(positions[row], passages)
    return np.argsort(is_own, axis=1, kind="stable")[:, : positions.shape[1] - max_own_passages(own_passages)]


def _correct_similarity(
    queries: Sequence[LabelledQuery], vectors: QueryVectors, index: Searchable, parents: Parents
) -> Float32:
    """Return the similarity of the most similar relevant passage, the correct one (docs/calibration.md); (q,)."""
    passages = relevant_passages(queries, parents)
    owners = np.repeat(np.arange(len(queries)), [len(relevant) for relevant in passages])
    positions = np.concatenate([np.arange(0), *passages])
    correct = np.full(len(queries), -np.inf, dtype=np.float32)
    for start in range(0, len(owners), _PAIRS):
        pairs = slice(start, start + _PAIRS)
        scores = index.score(vectors[owners[pairs]], positions[pairs, None])[:, 0]
        np.maximum.at(correct, owners[pairs], scores)
    return correct


def grades_of(queries: Sequence[LabelledQuery], positions: Positions, parents: Parents) -> NDArray[np.int64]:
    """Look up the grade of each result's document, (q, K) int64: 1 or more if the result is a relevant passage.

    It is negative if the document does not answer and gains in NDCG, and 0 otherwise.

    Args:
        positions: (q, K) positions of their results.
    """
    _check_corpus(queries, parents)
    documents = positions if parents is None else parents[positions]
    rows = zip(queries, positions.tolist(), documents.tolist(), strict=True)
    grades = [[query.grade(*result) for result in zip(results, owners, strict=True)] for query, results, owners in rows]
    return np.array(grades, dtype=np.int64).reshape(positions.shape)


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
        passages: N, the number of passages in the corpus.
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


def result_documents(
    queries: Sequence[LabelledQuery], positions: Positions, grades: NDArray[np.int64], parents: NDArray[np.int32]
) -> ResultDocuments:
    """Look up the documents of results.

    Args:
        positions: (q, K) positions of their results, best first.
        grades: (q, K), as `grades_of` returns them.
        parents: (N,) int32.
    """
    numbers, relevant = parents[positions], grades >= 1
    rows = zip(queries, numbers.tolist(), strict=True)
    named = [[document in (query.chunks or ()) for document in row] for query, row in rows]
    further = relevant & ~first_of_document(numbers, relevant)
    return ResultDocuments(numbers, ~further | np.array(named, dtype=np.bool_).reshape(numbers.shape))


def judge_queries(
    queries: Sequence[LabelledQuery], vectors: QueryVectors, index: Searchable, k: int, parents: Parents = None
) -> JudgedQueries:
    """Search every query once; a query that is a document itself is left out of its own results.

    Args:
        vectors: (q, d) float32, in the order of the queries.
        k: K, the number of results per query.
    """
    top = search_excluding_own(index, own_passages_of(queries), vectors, k)
    grades = grades_of(queries, top.positions, parents)
    return JudgedQueries(
        top=top,
        grades=grades,
        ideal=np.array([ideal_dcg(query.gains, k) for query in queries]),
        correct=_correct_similarity(queries, vectors, index, parents),
        documents=None if parents is None else result_documents(queries, top.positions, grades, parents),
    )


def ranking_outcomes(
    queries: Sequence[LabelledQuery], positions: NDArray[np.int64], k: int, parents: Parents = None
) -> RankingOutcomes:
    """Measure the passages that a search found, by their documents; a query is left out of its own results.

    Args:
        positions: (q, c) passages found, best first, c = max(K, 10) + `max_own_passages` of the queries, or fewer
            if the corpus is smaller.
    """
    positions = positions_excluding_own(own_passages_of(queries), positions)
    grades = grades_of(queries, positions, parents)
    retrieved = np.ones(grades.shape, dtype=np.bool_)
    gaining = retrieved if parents is None else first_of_document(parents[positions], grades != 0)
    ideal = np.array([ideal_dcg(query.gains, DEPTH) for query in queries])
    deep = slice(None), slice(DEPTH)
    ids = tuple(query.id for query in queries)
    return RankingOutcomes(accuracy(grades[:, :k], retrieved[:, :k]), ndcg(grades[deep], gaining[deep], ideal), ids)
