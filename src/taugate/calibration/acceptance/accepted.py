"""The search that the gate has accepted, with the evidence for it."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from taugate.calibration.encoding.corpus import EncodedTexts, encode_near_misses
from taugate.calibration.progress import Job
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.index.approximate import AnyIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.top_k import Index
from taugate.retrieval.release.golden import TOLERANCE
from taugate.retrieval.release.manifest import IndexRecord
from taugate.retrieval.release.search_records import GateRecord, ProjectionRecord, SkippedCandidate
from taugate.retrieval.vectors.projection import Projection


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
    """The encoder, projection and index that serve, with the evidence for them.

    Attributes:
        encoder: Encoder of queries.
        encoded: The data set as it is searched, by this encoder and through the projection.
        index: Index that serves.
        index_record: Record of the index in the manifest.
        lexical_part: Lexical part of the score; None if the score is the cosine.
        projection: None without a projection.
        float32: Encoder that a cheaper encoder of queries was made from, None without one.
        documents: Encoder of documents, None if it is that of queries.
        golden_tolerance: Largest difference of a score from the recorded one on another processor.
        gate: A record for every candidate tried, in order.
        skipped: Candidates that were not possible.
        engine: The collection of an engine that the index searches, None if the documents are in the release.
    """

    encoder: ExportedEncoder
    encoded: EncodedTexts
    index: Index
    index_record: IndexRecord
    lexical_part: LexicalPart | None = None
    projection: RecordedProjection | None = None
    float32: ExportedEncoder | None = None
    documents: ExportedEncoder | None = None
    golden_tolerance: float = TOLERANCE
    gate: tuple[GateRecord, ...] = ()
    skipped: tuple[SkippedCandidate, ...] = ()
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
        index: Index that serves.
        recall: Share of the exact top `depth` that the index finds, None for exact search.
        depth: Number of results at which recall was measured, None for exact search.
    """
    return IndexRecord(
        kind=index.kind, metric="cosine", documents=len(index), breadth=index.breadth, recall=recall, depth=depth
    )
