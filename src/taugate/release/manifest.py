"""The manifest, manifest.json, which describes a release and its measurements (schema 3, docs/calibration.md)."""

import math
from abc import abstractmethod
from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from taugate.policy.score_relevance import ScoreScale
from taugate.release.adaptation import AdaptationRecord
from taugate.release.encoder import EncoderConfig
from taugate.release.engine import EngineRecord
from taugate.release.evidence import (
    Alternative,
    DriftRecord,
    EvidenceRecord,
    IsotropyRecord,
    Record,
    RelevanceRecord,
    StrataRecord,
)
from taugate.release.layout import ENCODER_FOLDER, FLOAT32_FOLDER, QUERY_FOLDER
from taugate.release.names import Kind
from taugate.release.outcome_records import BootstrapRecord, LabelsRecord, MetricsRecord, PolicyRecord
from taugate.release.records import CalibrationRecord, CheckedAnswers, EncoderFitRecord, QuerySetRecord
from taugate.release.refusal_records import RefusalRecord
from taugate.release.search_records import (
    GateRecord,
    LexicalRecord,
    ProjectionRecord,
    SecondStageRecord,
    SkippedCandidate,
)
from taugate.release.state import (
    CertifiedLoss,
    ErasureRecord,
    State,
    UpdateRecord,
    WithdrawnRecord,
    certified_loss,
    state_in_words,
)

SCHEMA_VERSION: Literal[3] = 3

DataFile = Literal["corpus", "queries", "qrels", "run", "off_topic", "vectors", "query_vectors"]


class DataRecord(Record):
    """The data set that a release was calibrated on.

    Attributes:
        name: Name of its folder.
        split: Split of the qrels.
        documents: Number of documents.
        queries: Number of queries in the split.
        answerable: Number of queries with a relevant document.
        unanswerable: Number of queries without a relevant document.
        truncated_documents: Number of documents longer than the encoder reads.
        sha256: Digests of the files.
        empty_documents: Number of documents that were left out because they have neither title nor text; None if there
            is none.
        own_documents: Number of queries that are documents of the corpus with the same id, which are left out of their
            own results; None if there is none.
        relevant_from: The lowest grade of the qrels that answers, as requested; None for 1.
    """

    name: str
    split: str
    documents: int
    queries: int
    answerable: int
    unanswerable: int
    truncated_documents: int
    sha256: dict[DataFile, str]
    empty_documents: int | None = None
    own_documents: int | None = None
    relevant_from: int | None = None


class EncoderRecord(EncoderConfig):
    """An encoder's configuration with one digest of its files.

    Attributes:
        sha256: Digest of graph, tokenizer and configuration.
    """

    sha256: str


class IndexRecord(Record):
    """The index.

    Attributes:
        kind: Kind of the index.
        metric: Similarity measure.
        documents: Number of vectors.
        breadth: Breadth of a search in an approximate index (hnsw's ef, the number of probed lists), else None.
        recall: Share of the exact top `depth` that the index finds for the calibration queries; None for a flat float32
            index, which is exact.
        depth: Depth of `recall`; None for a flat float32 index.
    """

    kind: Kind
    metric: Literal["cosine"]
    documents: int
    breadth: int | None = None
    recall: float | None = None
    depth: int | None = None


class FileRecord(Record):
    """The SHA-256 in hexadecimal and the size in bytes of a file of the release."""

    sha256: str
    bytes: int


class Scorer(NamedTuple):
    """What scores results: thresholds of scorers with different digests cannot be compared."""

    name: str
    sha256: str


class ReleaseManifest(Record):
    """What the manifests of all releases have. The content digest excludes release_id, created_at and parent.

    Records that the writing version did not have are None. Fields that are not listed are described by their classes.

    Attributes:
        parent: Id of the previously current release.
        evidence: Unit of evidence among all answerable queries.
        calibration: Amount of evidence behind the release.
        refusal: What refuses queries as a whole, and how many questions without an answer get a result; None if neither
            is known.
        checked: Answers that are lost; None in releases of older versions, and if no query finds an answer.
        summary: What is certified and what was checked, in two lines (`summary.py`); a sentence or None in
            releases of older versions.
        drift: Smallest shift of the traffic that an alarm detects.
        update: None unless an update made the release.
        labels: None unless labels were combined with a machine's scores.
        withdrawn: Promises that do not hold for these documents; None without any.
        adaptation: None unless the encoder was adapted.
        reference: Name of the file of reference similarities.
        files: Every other file, by path.
    """

    schema_version: Literal[3] = SCHEMA_VERSION
    release_id: str
    created_at: str
    taugate_version: str
    parent: str | None = None
    data: DataRecord
    policy: PolicyRecord
    bootstrap: BootstrapRecord
    metrics: dict[Literal["calibration", "heldout"], MetricsRecord]
    alternatives: list[Alternative]
    relevance: RelevanceRecord | None = None
    evidence: EvidenceRecord | None = None
    strata: StrataRecord | None = None
    calibration: CalibrationRecord | None = None
    refusal: RefusalRecord | None = None
    checked: CheckedAnswers | None = None
    summary: str | None = None
    drift: DriftRecord | None = None
    update: UpdateRecord | None = None
    labels: LabelsRecord | None = None
    withdrawn: list[WithdrawnRecord] | None = None
    adaptation: AdaptationRecord | None = None
    reference: str
    files: dict[str, FileRecord]

    @property
    @abstractmethod
    def scorer(self) -> Scorer:
        """What scored the results."""

    @property
    @abstractmethod
    def max_score(self) -> float:
        """Upper limit of scores, as numbers without a sign."""

    @property
    def searchable(self) -> "Manifest | None":
        """This manifest if the release has a corpus to search, None for that of a run."""
        return None

    @property
    def documents_over_certified(self) -> float:
        """How far the corpus has grown since the thresholds were chosen; NaN for a store that cannot be counted."""
        return math.nan

    @property
    def answer_threshold(self) -> tuple[str, float] | None:
        """The name of the score that refuses queries as a whole, and its threshold; None if none is refused."""
        return None if self.refusal is None else self.refusal.threshold

    @property
    def state(self) -> State:
        """State of the calibration; releases of versions without this record count as calibrated."""
        if self.withdrawn:
            return "inherited"
        return "calibrated" if self.calibration is None else self.calibration.state

    @property
    def certified(self) -> CertifiedLoss | None:
        """The certified limit of lost answers; None without one, and if the evidence is not of people's questions."""
        policy = self.policy
        return certified_loss(self.state, policy.statement, policy.tau, policy.max_loss, policy.confidence)

    @property
    def state_in_words(self) -> str:
        """The state as every screen shows it: that of the calibration, or "certified" with the certified loss."""
        return state_in_words(self.state, self.certified)

    @field_validator("metrics")
    @classmethod
    def _calibration_is_there(cls, metrics: dict[str, MetricsRecord]) -> dict[str, MetricsRecord]:
        if "calibration" not in metrics:
            raise PydanticCustomError("no_calibration", "has no part named calibration")
        return metrics


class Manifest(ReleaseManifest):
    """The manifest of a release with a corpus, which the service searches.

    Attributes:
        encoder: Encoder of the calibration. If its runtime is "none", the release has no encoder: documents and queries
            came with vectors, and requests do.
        accepts_vectors: Whether requests may have the vector of the query although there is an encoder; None if they
            may not.
        query_encoder: Encoder of queries if `encoder` is for documents only; None if both share one.
        float32_encoder: Source of an encoder of queries in int8 or bfloat16, else None.
        erasure: None for a release as it was calibrated.
        encoder_fit: None if the encoder suits the texts.
        engine: Collection of the vectors and documents; None if they are in the release.
        lexical: Lexical part of the score; None if the score is the cosine.
        skipped: Candidates that were not judged; None without any.
        second_stage: Second stage, whose scores the policy, relevance, refusals and metrics are of; None with one
            stage.
        golden: Name of the file of golden queries.
        golden_tolerance: Largest allowed difference of a golden query's score.
    """

    encoder: EncoderRecord
    accepts_vectors: bool | None = None
    query_encoder: EncoderRecord | None = None
    float32_encoder: EncoderRecord | None = None
    projection: ProjectionRecord | None = None
    index: IndexRecord
    isotropy: IsotropyRecord
    query_set: QuerySetRecord
    erasure: ErasureRecord | None = None
    encoder_fit: EncoderFitRecord | None = None
    engine: EngineRecord | None = None
    lexical: LexicalRecord | None = None
    gate: list[GateRecord]
    skipped: list[SkippedCandidate] | None = None
    second_stage: SecondStageRecord | None = None
    golden: str
    golden_tolerance: float = Field(gt=0, lt=1)

    @property
    def searchable(self) -> Self:
        """This manifest."""
        return self

    @property
    def dimension(self) -> int:
        """The dimension of the searched vectors."""
        return self.encoder.dimension if self.projection is None else self.projection.dimension

    @property
    def reads_texts(self) -> bool:
        """True if there is an encoder, so that a query may be a text."""
        return self.encoder.runtime != "none"

    @property
    def reads_vectors(self) -> bool:
        """True if a query may be a vector."""
        return bool(self.accepts_vectors) or not self.reads_texts

    @property
    def certified_documents(self) -> int:
        """Number of documents of the release that chose the thresholds, which updates and erasures keep."""
        erased = 0 if self.erasure is None else self.erasure.documents
        before = None if self.update is None else self.update.documents
        return before or self.data.documents + erased

    @property
    def documents_over_certified(self) -> float:
        """Number of documents, divided by that of the release that chose the thresholds."""
        return self.data.documents / self.certified_documents

    @property
    def query_encoders(self) -> dict[str, EncoderRecord]:
        """The encoders that may encode queries, by folder: the calibrated one, then its float32 source."""
        if not self.reads_texts:
            return {}
        of_queries = {QUERY_FOLDER: self.query_encoder, FLOAT32_FOLDER: self.float32_encoder}
        encoders = {folder: record for folder, record in of_queries.items() if record is not None}
        return encoders if self.query_encoder is not None else {ENCODER_FOLDER: self.encoder} | encoders

    @property
    def answering(self) -> EncoderRecord:
        """The calibrated encoder of queries."""
        return self.query_encoder or self.encoder

    @property
    def scorer(self) -> Scorer:
        """Name of the query encoder, and the digest of its float32 weights, even if the release answers with int8.

        Comparing document encoders is not enough: a map learned for queries alone changes every similarity. With two
        stages, results have the scores of the second one.
        """
        if self.second_stage is not None:
            return Scorer(self.second_stage.name, self.second_stage.sha256)
        return Scorer(self.answering.name, (self.float32_encoder or self.answering).sha256)

    @property
    def first_stage(self) -> Self:
        """The manifest as that of the first stage alone; the manifest itself if there is no second stage."""
        if self.second_stage is None:
            return self
        return self.model_copy(update=vars(self.second_stage.first))

    @property
    def max_score(self) -> float:
        """Upper limit of scores: that of a cosine, plus the weight of a lexical part; none with a second stage."""
        if self.second_stage is not None:
            return math.inf
        return 1.0 if self.lexical is None else 1.0 + self.lexical.weight


class RetrieverRecord(Record):
    """The retriever of another system, of which a run was calibrated.

    Attributes:
        name: Its name: the tag of a TREC run, else the name of the file.
        scores: What its scores are. Distances are compared as negative numbers, so that higher is better everywhere.
        components: Names of the further scores of a result, in alphabetical order.
        depth: Smallest number of results of a query in the run.
        judged: Share of the top-K results that the qrels judge, in 0…1.
        sha256: Digest of `scores` and `components`, of which a threshold is a threshold.
    """

    name: str
    scores: ScoreScale
    components: list[str]
    depth: int = Field(ge=1)
    judged: float
    sha256: str


class RunManifest(ReleaseManifest):
    """The manifest of a release that was calibrated on a run: it has neither encoder nor documents.

    Attributes:
        retriever: What scored the results.
    """

    retriever: RetrieverRecord

    @property
    def scorer(self) -> Scorer:
        """Name of the retriever, and the digest of what its scores are."""
        return Scorer(self.retriever.name, self.retriever.sha256)

    @property
    def max_score(self) -> float:
        """The largest float32: a retriever may have any scale."""
        return float(np.finfo(np.float32).max)
