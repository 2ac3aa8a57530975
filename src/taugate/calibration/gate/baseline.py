"""The baseline of the gate, exact search of unprojected float32 vectors, and what has been admitted in its place.

`GateBaseline` is fixed before the first candidate is tried. `GateState` is what would serve at this point: every
candidate that is admitted gives a new one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.metrics.clusters import PerQuery, SamplingUnits
from taugate.calibration.metrics.documents import Parents, first_of_document, grades_of
from taugate.calibration.metrics.own_documents import max_own, other_positions, own_of
from taugate.calibration.metrics.ranking import accuracy, ideal_dcg, ndcg
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.index.approximate import AnyIndex, ApproximateIndex
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import Index, TopK
from taugate.retrieval.release.golden import TOLERANCE
from taugate.retrieval.release.manifest import IndexRecord
from taugate.retrieval.release.records import GateRecord, ProjectionRecord
from taugate.retrieval.vectors.projection import Projection
from taugate.retrieval.vectors.similarity import Float32, whole

DEPTH = 10  # of NDCG: the depth that the query embeddings paper and BEIR report


@dataclass(frozen=True)
class RankingOutcomes:
    """Accuracy@K and NDCG@10 of each of q queries.

    Attributes:
        accuracy: (q,) float64, 0 or 1.
        ndcg: (q,) float64, in 0…1.
    """

    accuracy: PerQuery
    ndcg: PerQuery

    @classmethod
    def judge(
        cls, queries: Sequence[LabelledQuery], positions: NDArray[np.int64], k: int, parents: Parents = None
    ) -> Self:
        """Judge the passages that a search found, by their documents; a query is left out of its own results.

        Args:
            queries: The q queries that were searched.
            positions: (q, c) passages found, best first, c = max(K, 10) and `max_own` of the queries; fewer columns
                where the corpus has no more.
            k: K of accuracy@K.
            parents: Of the corpus.
        """
        positions = other_positions(own_of(queries), positions)
        grades = grades_of(queries, positions, parents)
        found = np.ones(grades.shape, dtype=np.bool_)
        gaining = found if parents is None else first_of_document(parents[positions], grades >= 1)
        ideal = np.array([ideal_dcg(query.relevant.values(), DEPTH) for query in queries])
        deep = slice(None), slice(DEPTH)
        return cls(accuracy(grades[:, :k], found[:, :k]), ndcg(grades[deep], gaining[deep], ideal))

    def shifted(self, before: Self, after: Self) -> Self:
        """Add the change from `before` to `after`, two outcomes of the same q queries, query by query."""
        return type(self)(
            self.accuracy + after.accuracy - before.accuracy,
            self.ndcg + after.ndcg - before.ndcg,
        )


@dataclass(frozen=True)
class SearchTrial:
    """The queries that the gate judges by, ready to be answered from the documents by any index.

    Attributes:
        queries: q labelled queries.
        vectors: (q, d) float32, one for each query.
        documents: (N, d) float32.
        k: Results asked for; NDCG looks at ten where K is smaller.
        exact: Exact search of the same documents.
        parents: Of the corpus.
    """

    queries: Sequence[LabelledQuery]
    vectors: Float32
    documents: Float32
    k: int
    exact: FlatIndex
    parents: Parents = None

    @classmethod
    def build(
        cls,
        queries: Sequence[LabelledQuery],
        vectors: Float32,
        documents: Float32,
        k: int,
        parents: Parents = None,
    ) -> Self:
        """Build the exact index of the documents.

        Args:
            queries: q labelled queries.
            vectors: (q, d) float32.
            documents: (N, d) float32.
            k: Results asked for.
            parents: Of the corpus.
        """
        return cls(queries, vectors, documents, k, FlatIndex.build(documents), parents)

    @property
    def depth(self) -> int:
        """Results that are searched of each query, its own passages included."""
        return max(self.k, DEPTH) + max_own(own_of(self.queries))

    def outcomes(self, index: Index | None = None) -> RankingOutcomes:
        """Search with `index`, or exactly where it is None, and judge what is found."""
        return self.judge((self.exact if index is None else index).search(self.vectors, self.depth))

    def judge(self, top: TopK) -> RankingOutcomes:
        """Judge what a search found.

        Args:
            top: (q, `depth`) results of the queries.
        """
        return RankingOutcomes.judge(self.queries, top.positions, self.k, self.parents)


@dataclass(frozen=True)
class GateBaseline:
    """The exact, unprojected float32 search that every candidate is compared with.

    Attributes:
        members: Positions of the q calibration queries among the answerable ones.
        units: What counts as one draw among the q queries.
        trial: The q queries as the float32 encoder has them, with the exact index of the documents.
        outcomes: What exact search finds for them.
    """

    members: NDArray[np.int64]
    units: SamplingUnits
    trial: SearchTrial
    outcomes: RankingOutcomes

    @classmethod
    def judge(cls, members: NDArray[np.int64], units: SamplingUnits, trial: SearchTrial) -> Self:
        """Search exactly and judge what is found.

        Args:
            members: Positions of the q calibration queries.
            units: What counts as one draw among them.
            trial: The q queries, with the exact index.
        """
        return cls(members, units, trial, trial.outcomes())


@dataclass(frozen=True)
class RecordedProjection:
    """A projection, fitted.

    Attributes:
        record: What the manifest says of it.
    """

    projection: Projection
    record: ProjectionRecord


@dataclass(frozen=True)
class Admitted:
    """The encoder, projection and index that serve, with the evidence for them.

    Attributes:
        encoder: Encoder of queries.
        encoded: The data set as it is searched, by this encoder and through the projection.
        index: Index that serves.
        index_record: What the manifest says of it.
        projection: None without one.
        float32: Encoder that an int8 encoder was made of, None where none is admitted.
        documents: Encoder of documents, None where it is that of queries.
        golden_tolerance: How far a score may be from the one recorded, on another processor.
        gate: A record for every candidate tried, in order.
        engine: The collection of an engine that the index searches, None where the documents are in the release.
    """

    encoder: OnnxEncoder
    encoded: EncodedTexts
    index: Index
    index_record: IndexRecord
    projection: RecordedProjection | None = None
    float32: OnnxEncoder | None = None
    documents: OnnxEncoder | None = None
    golden_tolerance: float = TOLERANCE
    gate: tuple[GateRecord, ...] = ()
    engine: EngineRecord | None = None


@dataclass(frozen=True)
class GateState:
    """The state of the gate between two candidates: what serves so far, ready for the next one to be tried.

    Attributes:
        admitted: What serves.
        trial: The calibration queries, encoded and projected as it has them, with exact search.
        outcomes: Outcomes of queries that the projection was not fitted on, None without a projection.
    """

    admitted: Admitted
    trial: SearchTrial
    outcomes: RankingOutcomes | None = None

    @classmethod
    def exact(cls, encoder: OnnxEncoder, encoded: EncodedTexts, trial: SearchTrial) -> Self:
        """Start from exact search of what the float32 encoder gives.

        Args:
            encoder: The float32 encoder.
            encoded: Its vectors.
            trial: The calibration queries, with the exact index.
        """
        return cls(Admitted(encoder, encoded, trial.exact, index_record(trial.exact)), trial)

    def with_queries(self, encoder: OnnxEncoder, encoded: EncodedTexts, vectors: Float32) -> Self:
        """Serve another encoder's queries from the same documents.

        Args:
            encoder: The other encoder.
            encoded: The data set with its queries.
            vectors: (q, d) float32, its vectors of the calibration queries.
        """
        admitted = replace(self.admitted, encoder=encoder, encoded=encoded, float32=self.admitted.encoder)
        return replace(self, admitted=admitted, trial=replace(self.trial, vectors=vectors))

    def with_projection(
        self, fitted: RecordedProjection, outcomes: RankingOutcomes, members: NDArray[np.int64]
    ) -> Self:
        """Project everything, and search it exactly.

        Args:
            fitted: Projection to apply.
            outcomes: Outcomes of the calibration queries, each by a projection that was not fitted on it.
            members: Positions of the calibration queries among the answerable ones.
        """
        before, projection = self.admitted.encoded, fitted.projection
        encoded = replace(
            before,
            documents=projection.apply(whole(before.documents)),
            answerable=projection.apply(before.answerable),
            unanswerable=projection.apply(before.unanswerable),
            off_topic=projection.apply(before.off_topic),
            unjudged=None if before.unjudged is None else projection.apply(before.unjudged),
            generated=None if before.generated is None else projection.apply(before.generated),
        )
        queries, vectors = self.trial.queries, encoded.answerable[members]
        trial = SearchTrial.build(queries, vectors, whole(encoded.documents), self.trial.k, self.trial.parents)
        admitted = replace(
            self.admitted,
            encoded=encoded,
            index=trial.exact,
            index_record=index_record(trial.exact),
            projection=fitted,
        )
        return replace(self, admitted=admitted, trial=trial, outcomes=outcomes)

    def with_index(self, index: AnyIndex, recall: float) -> Self:
        """Search with another index.

        Args:
            index: Index of the same documents.
            recall: Share of the exact top `trial.depth` that it finds.
        """
        record = index_record(index, recall, self.trial.depth)
        return replace(self, admitted=replace(self.admitted, index=index, index_record=record))


def index_record(index: AnyIndex, recall: float | None = None, depth: int | None = None) -> IndexRecord:
    """Write down an index for the manifest.

    Args:
        index: Index that serves.
        recall: Share of the exact top `depth` that it finds, None for exact search.
        depth: Results that recall was measured at, None for exact search.
    """
    breadth = index.breadth if isinstance(index, ApproximateIndex) else None
    return IndexRecord(
        kind=index.kind, metric="cosine", documents=len(index), breadth=breadth, recall=recall, depth=depth
    )
