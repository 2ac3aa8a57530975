"""Labelled queries, how they were drawn, and what a search found for them: the inputs of a study."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from taugate.calibration.progress import Job
from taugate.calibration.settings import CalibrationSettings
from taugate.data.beir import Dataset
from taugate.data.generation.generate import normalized
from taugate.data.judgements import HUMAN, TRAFFIC
from taugate.data.labelled_queries import LabelledQueries, LabelledQuery
from taugate.data.queries import PEOPLE
from taugate.evidence import ranking
from taugate.evidence.acceptance import DEPTH, RankingOutcomes
from taugate.evidence.clusters import ClusterIds, SamplingUnits
from taugate.evidence.divisions import Positions
from taugate.evidence.measure import DrawnQueries
from taugate.policy.arrays import Float32, QueryVectors, Ranking
from taugate.policy.score_relevance import NO_COMPONENTS, Components
from taugate.release.evidence import Drawn
from taugate.retrieval.documents.store import Document
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
    queries: Sequence[LabelledQuery], vectors: QueryVectors, index: Searchable, parents: ranking.Parents
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


def grades_of(queries: Sequence[LabelledQuery], positions: Positions, parents: ranking.Parents) -> NDArray[np.int64]:
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


def relevant_passages(queries: Sequence[LabelledQuery], parents: ranking.Parents) -> list[Positions]:
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


def chance_of_a_hit(queries: Sequence[LabelledQuery], parents: ranking.Parents, passages: int, k: int) -> float:
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


def _check_corpus(queries: Sequence[LabelledQuery], parents: ranking.Parents) -> None:
    """Prevent document labels from being read as passage labels, which would give wrong figures silently."""
    if parents is None and any(query.chunks is not None for query in queries):
        raise AssertionError("queries of a corpus in chunks are judged without its `parents`")


def result_documents(
    queries: Sequence[LabelledQuery], positions: Positions, grades: NDArray[np.int64], parents: NDArray[np.int32]
) -> ranking.ResultDocuments:
    """Look up the documents of results.

    Args:
        positions: (q, K) positions of their results, best first.
        grades: (q, K), as `grades_of` returns them.
        parents: (N,) int32.
    """
    numbers, relevant = parents[positions], grades >= 1
    rows = zip(queries, numbers.tolist(), strict=True)
    named = [[document in (query.chunks or ()) for document in row] for query, row in rows]
    further = relevant & ~ranking.first_of_document(numbers, relevant)
    return ranking.ResultDocuments(numbers, ~further | np.array(named, dtype=np.bool_).reshape(numbers.shape))


def judge_queries(
    queries: Sequence[LabelledQuery], vectors: QueryVectors, index: Searchable, k: int, parents: ranking.Parents = None
) -> ranking.JudgedQueries:
    """Search every query once; a query that is a document itself is left out of its own results.

    Args:
        vectors: (q, d) float32, in the order of the queries.
        k: K, the number of results per query.
    """
    top = search_excluding_own(index, own_passages_of(queries), vectors, k)
    grades = grades_of(queries, top.positions, parents)
    return ranking.JudgedQueries(
        top=top,
        grades=grades,
        ideal=np.array([ranking.ideal_dcg(query.gains, k) for query in queries]),
        correct=_correct_similarity(queries, vectors, index, parents),
        documents=None if parents is None else result_documents(queries, top.positions, grades, parents),
    )


def ranking_outcomes(
    queries: Sequence[LabelledQuery], positions: NDArray[np.int64], k: int, parents: ranking.Parents = None
) -> RankingOutcomes:
    """Measure the passages that a search found, by their documents; a query is left out of its own results.

    Args:
        positions: (q, c) passages found, best first, c = max(K, 10) + `max_own_passages` of the queries, or fewer
            if the corpus is smaller.
    """
    positions = positions_excluding_own(own_passages_of(queries), positions)
    grades = grades_of(queries, positions, parents)
    retrieved = np.ones(grades.shape, dtype=np.bool_)
    gaining = retrieved if parents is None else ranking.first_of_document(parents[positions], grades != 0)
    ideal = np.array([ranking.ideal_dcg(query.gains, DEPTH) for query in queries])
    deep = slice(None), slice(DEPTH)
    ids = tuple(query.id for query in queries)
    return RankingOutcomes(
        ranking.accuracy(grades[:, :k], retrieved[:, :k]), ranking.ndcg(grades[deep], gaining[deep], ideal), ids
    )


RECALL_DEPTH, PRECISION_DEPTH = (
    100,
    10,
)  # of the query generation paper (Table 8) and the query embeddings paper (Table 7)


@dataclass(frozen=True)
class DeepFigures:
    """Means over queries."""

    recall: float  # share of a query's relevant documents among its first 100 results
    precision: float  # share of its first 10 results that are relevant documents; chunks of one document count once

    @classmethod
    def measure(
        cls, queries: Sequence[LabelledQuery], vectors: QueryVectors, index: Searchable, parents: ranking.Parents = None
    ) -> "DeepFigures":
        """Search the (q, d) vectors of q ≥ 1 answerable queries in the index of the passages."""
        positions = search_excluding_own(index, own_passages_of(queries), vectors, RECALL_DEPTH).positions
        relevant = grades_of(queries, positions, parents) >= 1
        if parents is not None:
            relevant = ranking.first_of_document(parents[positions], relevant)
        return cls(
            recall=float(np.mean(relevant.sum(axis=1) / [len(query.relevant) for query in queries])),
            precision=float(relevant[:, :PRECISION_DEPTH].sum(axis=1).mean() / PRECISION_DEPTH),
        )


@dataclass(frozen=True)
class SearchedQueries(ABC):
    """Labelled queries with their results."""

    dataset: LabelledQueries
    judged: ranking.JudgedQueries
    unanswerable: Ranking
    units: SamplingUnits

    @cached_property
    def cluster_ids(self) -> NDArray[np.int64]:
        """Clusters of the answerable queries, then of the unanswerable ones, (n + u,)."""
        return sampling_clusters(self.dataset.answerable + self.dataset.unanswerable, self.units.drawn)

    @property
    @abstractmethod
    def score_name(self) -> str:
        """What results are compared by, for charts and sentences."""

    @property
    def shares(self) -> bool:
        """Whether a share of the best score means something: scores are above 0, and 0 is no similarity."""
        return True

    @property
    def components(self) -> tuple[Components, Components]:
        """Component scores of the results of the answerable and of the unanswerable queries; empty without any."""
        return NO_COMPONENTS, NO_COMPONENTS

    def deep(self, members: NDArray[np.int64]) -> DeepFigures | None:
        """Measure 100 results of the answerable queries at `members`; None if no more than the K results are known."""
        return None

    @abstractmethod
    def document(self, number: int) -> Document:
        """Return the passage with a number, as far as it is known here."""


@dataclass(frozen=True)
class StudyInputs:
    """Labelled queries, their division, and the settings."""

    dataset: LabelledQueries
    drawn: DrawnQueries
    settings: CalibrationSettings
    job: Job

    @property
    def units(self) -> SamplingUnits:
        """Sampling units of the answerable queries."""
        return self.drawn.units


@dataclass(frozen=True)
class CalibrationInputs(StudyInputs):
    """The inputs of a calibration on a corpus."""

    dataset: Dataset


def how_drawn(dataset: LabelledQueries) -> Drawn | None:
    """Tell how the labelled queries were drawn from their split and origins; None if these do not say it.

    Users ask queries one by one (traffic), and `taugate judge` draws a random sample of queries. Crops and questions of
    a language model are made from documents.
    """
    origins = {query.origin for query in dataset.answerable}
    if origins - PEOPLE:
        return "documents"
    return "queries" if dataset.split in {HUMAN, TRAFFIC} or origins == {"traffic"} else None


def sampling_clusters(queries: Sequence[LabelledQuery], drawn: Drawn | None) -> ClusterIds:
    """Number the clusters of queries that were drawn together, (q,): single queries, or those that share documents."""
    return np.arange(len(queries)) if drawn == "queries" else clusters(queries)


def clusters(queries: Sequence[LabelledQuery]) -> ClusterIds:
    """Number the clusters of queries, (q,): 0, 1, … in order of first appearance.

    Queries that share a document are in one cluster, directly or through other queries. The documents of an answerable
    query are its relevant ones. Those of an unanswerable query are the ones it was judged against: a question that a
    document does not answer is still about that document. Unanswerable queries without a document share a cluster if
    their texts are equal.
    """
    texts: dict[str, int] = {}  # a number below 0 for each text, beside the positions of documents
    about = [
        tuple(query.relevant) or query.judged or (texts.setdefault(normalized(query.text), -1 - len(texts)),)
        for query in queries
    ]
    owners = np.repeat(np.arange(len(queries)), [len(documents) for documents in about])
    positions = np.array([position for documents in about for position in documents], dtype=np.int64)
    _, document_numbers = np.unique(positions, return_inverse=True)
    nodes = len(queries) + len(positions)  # every query, then every document; unused nodes have no edge
    edges = coo_array((np.ones(len(owners)), (owners, len(queries) + document_numbers)), shape=(nodes, nodes))
    components: NDArray[np.int32] = connected_components(edges, directed=False)[1]
    return components[: len(queries)].astype(np.int64)  # scipy numbers components by their first node: a query


def units_of(queries: Sequence[LabelledQuery], drawn: Drawn | None) -> SamplingUnits:
    """Find the clusters of all labelled queries of a kind; `drawn`: how they were drawn, None to assume documents."""
    return replace(SamplingUnits.from_clusters(sampling_clusters(queries, drawn)), drawn=drawn)
