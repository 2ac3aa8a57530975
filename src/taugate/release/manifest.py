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
    """The data set that a release was calibrated on."""

    name: str  # name of its folder
    split: str  # split of the qrels
    documents: int
    queries: int  # number of queries in the split
    answerable: int  # number of queries with a relevant document
    unanswerable: int  # number of queries without a relevant document
    truncated_documents: int  # number of documents longer than the encoder reads
    sha256: dict[DataFile, str]
    # Number of documents that were left out because they have neither title nor text; None if there is none.
    empty_documents: int | None = None
    # Number of queries that are documents of the corpus with the same id, which are left out of their own results; None
    # if there is none.
    own_documents: int | None = None
    relevant_from: int | None = None  # the lowest grade of the qrels that answers, as requested; None for 1


class EncoderRecord(EncoderConfig):
    """An encoder's configuration with one digest of its files."""

    sha256: str  # digest of graph, tokenizer and configuration


class IndexRecord(Record):
    """The index."""

    kind: Kind
    metric: Literal["cosine"]
    documents: int
    # Breadth of a search in an approximate index (hnsw's ef, the number of probed lists), else None.
    breadth: int | None = None
    # Share of the exact top `depth` that the index finds for the calibration queries; None for a flat float32 index,
    # which is exact.
    recall: float | None = None
    depth: int | None = None  # depth of `recall`; None for a flat float32 index


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

    Records that the writing version did not have are None.
    """

    schema_version: Literal[3] = SCHEMA_VERSION
    release_id: str
    created_at: str
    taugate_version: str
    parent: str | None = None  # id of the previously current release
    data: DataRecord
    policy: PolicyRecord
    bootstrap: BootstrapRecord
    metrics: dict[Literal["calibration", "heldout"], MetricsRecord]
    alternatives: list[Alternative]
    relevance: RelevanceRecord | None = None
    evidence: EvidenceRecord | None = None  # unit of evidence among all answerable queries
    strata: StrataRecord | None = None
    calibration: CalibrationRecord | None = None  # amount of evidence behind the release
    # What refuses queries as a whole, and how many questions without an answer get a result; None if neither is known.
    refusal: RefusalRecord | None = None
    # Answers that are lost; None in releases of older versions, and if no query finds an answer.
    checked: CheckedAnswers | None = None
    # What is certified and what was checked, in two lines (`summary.py`); a sentence or None in releases of older
    # versions.
    summary: str | None = None
    drift: DriftRecord | None = None  # smallest shift of the traffic that an alarm detects
    update: UpdateRecord | None = None  # None unless an update made the release
    labels: LabelsRecord | None = None  # None unless labels were combined with a machine's scores
    withdrawn: list[WithdrawnRecord] | None = None  # promises that do not hold for these documents; None without any
    adaptation: AdaptationRecord | None = None  # None unless the encoder was adapted
    reference: str  # name of the file of reference similarities
    files: dict[str, FileRecord]  # every other file, by path

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
    """The manifest of a release with a corpus, which the service searches."""

    # Encoder of the calibration. If its runtime is "none", the release has no encoder: documents and queries came with
    # vectors, and requests do.
    encoder: EncoderRecord
    # Whether requests may have the vector of the query although there is an encoder; None if they may not.
    accepts_vectors: bool | None = None
    # Encoder of queries if `encoder` is for documents only; None if both share one.
    query_encoder: EncoderRecord | None = None
    float32_encoder: EncoderRecord | None = None  # source of an encoder of queries in int8 or bfloat16, else None
    projection: ProjectionRecord | None = None
    index: IndexRecord
    isotropy: IsotropyRecord
    query_set: QuerySetRecord
    erasure: ErasureRecord | None = None  # None for a release as it was calibrated
    encoder_fit: EncoderFitRecord | None = None  # None if the encoder suits the texts
    engine: EngineRecord | None = None  # collection of the vectors and documents; None if they are in the release
    lexical: LexicalRecord | None = None  # lexical part of the score; None if the score is the cosine
    gate: list[GateRecord]
    skipped: list[SkippedCandidate] | None = None  # candidates that were not judged; None without any
    # Second stage, whose scores the policy, relevance, refusals and metrics are of; None with one stage.
    second_stage: SecondStageRecord | None = None
    golden: str  # name of the file of golden queries
    golden_tolerance: float = Field(gt=0, lt=1)  # largest allowed difference of a golden query's score

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
    """The retriever of another system, of which a run was calibrated."""

    name: str  # its name: the tag of a TREC run, else the name of the file
    # What its scores are. Distances are compared as negative numbers, so that higher is better everywhere.
    scores: ScoreScale
    components: list[str]  # names of the further scores of a result, in alphabetical order
    depth: int = Field(ge=1)  # smallest number of results of a query in the run
    judged: float  # share of the top-K results that the qrels judge, in 0…1
    sha256: str  # digest of `scores` and `components`, of which a threshold is a threshold


class RunManifest(ReleaseManifest):
    """The manifest of a release that was calibrated on a run: it has neither encoder nor documents."""

    retriever: RetrieverRecord  # what scored the results

    @property
    def scorer(self) -> Scorer:
        """Name of the retriever, and the digest of what its scores are."""
        return Scorer(self.retriever.name, self.retriever.sha256)

    @property
    def max_score(self) -> float:
        """The largest float32: a retriever may have any scale."""
        return float(np.finfo(np.float32).max)
