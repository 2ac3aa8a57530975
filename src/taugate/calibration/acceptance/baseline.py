"""The baseline of the gate, exact search of float32 vectors, and the search that the gate has accepted so far.

The trial of the first state is the baseline of every candidate. `GateState` is the configuration that would serve now;
every accepted candidate gives a new one.
"""

import statistics
import time
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self, TypeVar

from taugate.calibration.encoding.corpus import EncodedTexts, encode_near_misses
from taugate.calibration.metrics.inputs import max_own_passages, own_passages_of, ranking_outcomes
from taugate.calibration.progress import Job
from taugate.data.beir import Dataset
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.acceptance import DEPTH, RankingOutcomes
from taugate.evidence.ranking import Parents
from taugate.policy.arrays import Float32, QueryVectors, map_dense, require_in_memory
from taugate.release.engine import EngineRecord
from taugate.release.golden import TOLERANCE
from taugate.release.manifest import IndexRecord
from taugate.release.search_records import GateRecord, ProjectionRecord, SkippedCandidate
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.approximate import AnyIndex
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.top_k import Index, TopK
from taugate.retrieval.vectors import Projection

_ROUNDS = 3  # of timing
_Batch = TypeVar("_Batch", bound=Sized)


class LexicalPart(NamedTuple):
    """The lexical part of a score: the index of the documents' words, and the weight of the share."""

    words: LexicalIndex
    weight: float


@dataclass(frozen=True)
class RecordedProjection:
    """A fitted projection with its record in the manifest."""

    projection: Projection
    record: ProjectionRecord


@dataclass(frozen=True)
class AcceptedSearch:
    """The encoder, projection and index that serve, with the evidence for them."""

    encoder: ExportedEncoder
    encoded: EncodedTexts  # the data set as it is searched, by this encoder and through the projection
    index: Index
    index_record: IndexRecord
    lexical_part: LexicalPart | None = None  # lexical part of the score; None if the score is the cosine
    projection: RecordedProjection | None = None
    float32: ExportedEncoder | None = None  # encoder that a cheaper encoder of queries was made from, None without one
    documents: ExportedEncoder | None = None  # encoder of documents, None if it is that of queries
    golden_tolerance: float = TOLERANCE  # largest difference of a score from the recorded one on another processor
    gate: tuple[GateRecord, ...] = ()  # a record for every candidate tried, in order
    skipped: tuple[SkippedCandidate, ...] = ()
    # The collection of an engine that the index searches, None if the documents are in the release
    engine: EngineRecord | None = None

    def with_near_misses(self, dataset: Dataset, seed: int, job: Job) -> Self:
        """Make near misses from the answerable queries, and encode them; parameters as for `encode_near_misses`."""
        projection = None if self.projection is None else self.projection.projection
        rule = None if self.lexical_part is None else self.lexical_part.words.statistics.rule
        questions = encode_near_misses(dataset, self.encoder, projection, seed, job, rule=rule)
        return replace(self, encoded=replace(self.encoded, near_misses=questions))


def index_record(index: AnyIndex, recall: float | None = None, depth: int | None = None) -> IndexRecord:
    """Record an index for the manifest.

    Args:
        recall: Share of the exact top `depth` that the index finds, None for exact search.
        depth: Number of results at which recall was measured, None for exact search.
    """
    return IndexRecord(
        kind=index.kind, metric="cosine", documents=len(index), breadth=index.breadth, recall=recall, depth=depth
    )


@dataclass(frozen=True)
class SearchTrial:
    """The queries by which the gate compares candidates, with the documents that any index can search."""

    queries: Sequence[LabelledQuery]
    vectors: QueryVectors  # (q, d) float32, one for each query
    documents: Float32  # (N, d) float32
    k: int  # k, the number of results; NDCG takes ten results even if K is smaller
    flat: FlatIndex
    parents: Parents = None
    lexical: LexicalPart | None = None  # lexical part of the score; None if the score is the cosine

    @classmethod
    def build(
        cls,
        queries: Sequence[LabelledQuery],
        vectors: QueryVectors,
        documents: Float32,
        k: int,
        parents: Parents = None,
        lexical: LexicalPart | None = None,
    ) -> Self:
        """Build the exact index of the documents.

        Args:
            vectors: (q, d) float32.
            documents: (N, d) float32.
            lexical: Lexical part of the score; None if the score is the cosine.
        """
        return cls(queries, vectors, documents, k, FlatIndex.build(documents), parents, lexical)

    @cached_property
    def exact(self) -> Index:
        """Exact search by the score."""
        return self.searched(self.flat)

    def searched(self, vectors: Index) -> Index:
        """Return the search by the score, given an index of the documents' vectors."""
        return vectors if self.lexical is None else HybridIndex(vectors, self.lexical.words, self.lexical.weight)

    @property
    def depth(self) -> int:
        """Number of results searched for each query, including its own passages."""
        return max(self.k, DEPTH) + max_own_passages(own_passages_of(self.queries))

    @cached_property
    def exact_outcomes(self) -> RankingOutcomes:
        """Outcomes of exact search."""
        return self.outcomes()

    def outcomes(self, vectors: Index | None = None) -> RankingOutcomes:
        """Search with an index of the documents' vectors, exactly if it is None, and measure the results."""
        return self.judge(self.searched(self.flat if vectors is None else vectors).search(self.vectors, self.depth))

    def judge(self, top: TopK) -> RankingOutcomes:
        """Measure the (q, `depth`) results of a search."""
        return ranking_outcomes(self.queries, top.positions, self.k, self.parents)


@dataclass(frozen=True)
class GateState:
    """The state of the gate between two candidates: what serves so far, ready for the next one to be tried."""

    accepted: AcceptedSearch
    trial: SearchTrial  # the answerable queries, encoded and projected as in `accepted`, with exact search
    # Outcomes of queries that the projection was not fitted on, None without a projection
    outcomes: RankingOutcomes | None = None

    @classmethod
    def exact(cls, encoder: ExportedEncoder, encoded: EncodedTexts, trial: SearchTrial) -> Self:
        """Start from exact search of the float32 encoder's vectors."""
        accepted = AcceptedSearch(encoder, encoded, trial.exact, index_record(trial.flat), trial.lexical)
        return cls(accepted, trial)

    def leaving_out(self, skipped: Sequence[SkippedCandidate]) -> Self:
        """Record candidates that are not judged."""
        return replace(self, accepted=replace(self.accepted, skipped=(*self.accepted.skipped, *skipped)))

    def with_encoded(self, encoded: EncodedTexts) -> Self:
        """Search for the same queries, encoded otherwise, in the same documents."""
        return replace(
            self,
            accepted=replace(self.accepted, encoded=encoded),
            trial=replace(self.trial, vectors=encoded.answerable),
        )

    def with_lexical(self, lexical: LexicalPart) -> Self:
        """Add a lexical part to the score; the queries have their words already."""
        trial = replace(self.trial, lexical=lexical)
        return replace(self, accepted=replace(self.accepted, index=trial.exact, lexical_part=lexical), trial=trial)

    def with_queries(self, encoder: ExportedEncoder, encoded: EncodedTexts) -> Self:
        """Encode queries with another encoder, with the same documents."""
        accepted = replace(self.accepted, encoder=encoder, float32=self.accepted.encoder)
        return replace(self, accepted=accepted).with_encoded(encoded)

    def with_projection(self, fitted: RecordedProjection, outcomes: RankingOutcomes) -> Self:
        """Project everything, and search it exactly.

        Args:
            outcomes: Outcomes of the queries, each by a projection that was not fitted on it.
        """
        before, projection = self.accepted.encoded, fitted.projection
        projected = before.with_queries(lambda _, vectors: map_dense(vectors, projection.apply))
        encoded = replace(projected, documents=projection.apply(require_in_memory(before.documents)))
        trial = SearchTrial.build(
            self.trial.queries,
            encoded.answerable,
            require_in_memory(encoded.documents),
            self.trial.k,
            self.trial.parents,
            self.trial.lexical,
        )
        accepted = replace(
            self.accepted, encoded=encoded, index=trial.exact, index_record=index_record(trial.flat), projection=fitted
        )
        return replace(self, accepted=accepted, trial=trial, outcomes=outcomes)

    def with_index(self, index: AnyIndex, recall: float) -> Self:
        """Search with another index."""
        record = index_record(index, recall, self.trial.depth)
        return replace(self, accepted=replace(self.accepted, index=self.trial.searched(index), index_record=record))


def speeds(
    baseline: Callable[[_Batch], object], candidate: Callable[[_Batch], object], batch: _Batch, lone: Sequence[_Batch]
) -> dict[str, float]:
    """Time a candidate against its baseline, as medians over rounds.

    The two alternate within a round, so that changes in the machine's load affect both alike.

    Returns:
        `queries_per_second` of the batch and `milliseconds` of a lone query; for the baseline, the same names with the
        prefix `baseline_`.
    """
    ways = {"baseline_": baseline, "": candidate}
    batched: dict[str, list[float]] = {name: [] for name in ways}
    alone: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, answer in ways.items():
            batched[name].append(_seconds(answer, batch))
            alone[name] += [_seconds(answer, query) for query in lone]
    gain = {f"{name}queries_per_second": len(batch) / statistics.median(times) for name, times in batched.items()}
    return gain | {f"{name}milliseconds": 1000 * statistics.median(times) for name, times in alone.items()}


def _seconds(answer: Callable[[_Batch], object], batch: _Batch) -> float:
    began = time.perf_counter()
    answer(batch)
    return time.perf_counter() - began
