"""The inputs of a study: labelled queries, how they were drawn, and what a search found for them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from taugate.calibration.metrics.judging import grades_of, own_passages_of, search_excluding_own
from taugate.calibration.progress import Job
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.data.beir import Dataset
from taugate.data.generation.generate import normalized
from taugate.data.judgements import HUMAN, TRAFFIC
from taugate.data.labelled_queries import LabelledQueries, LabelledQuery
from taugate.data.queries import PEOPLE
from taugate.evidence.clusters import ClusterIds, SamplingUnits
from taugate.evidence.measure import DrawnQueries
from taugate.evidence.ranking import JudgedQueries, Parents, first_of_document
from taugate.policy.arrays import QueryVectors, Ranking
from taugate.policy.score_relevance import NO_COMPONENTS, Components
from taugate.release.evidence import Drawn
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.top_k import Searchable

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
        cls, queries: Sequence[LabelledQuery], vectors: QueryVectors, index: Searchable, parents: Parents = None
    ) -> "DeepFigures":
        """Search the (q, d) vectors of q ≥ 1 answerable queries in the index of the passages."""
        positions = search_excluding_own(index, own_passages_of(queries), vectors, RECALL_DEPTH).positions
        relevant = grades_of(queries, positions, parents) >= 1
        if parents is not None:
            relevant = first_of_document(parents[positions], relevant)
        return cls(
            recall=float(np.mean(relevant.sum(axis=1) / [len(query.relevant) for query in queries])),
            precision=float(relevant[:, :PRECISION_DEPTH].sum(axis=1).mean() / PRECISION_DEPTH),
        )


@dataclass(frozen=True)
class SearchedQueries(ABC):
    """Labelled queries with their results."""

    dataset: LabelledQueries
    judged: JudgedQueries
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
