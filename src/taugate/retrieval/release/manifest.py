"""The manifest, which says what a release is and what was measured: manifest.json, schema 2 (docs/calibration.md)."""

from typing import Any, Literal, Self

import numpy as np
from pydantic import (
    Field,
    FiniteFloat,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from taugate.retrieval.encoder.encoder import EncoderConfig
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.index.kinds import Kind
from taugate.retrieval.policy.policy import Metric, PolicyKind
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.evidence import (
    Alternative,
    Certificate,
    Choice,
    DriftRecord,
    Estimate,
    EvidenceRecord,
    Interval,
    IsotropyRecord,
    Level,
    Method,
    Record,
    RelevanceRecord,
    Statement,
    StrataRecord,
)
from taugate.retrieval.release.labels import LabelsRecord
from taugate.retrieval.release.layout import ENCODER_FOLDER, FLOAT32_FOLDER, QUERY_FOLDER
from taugate.retrieval.release.records import (
    AbstentionRecord,
    CalibrationRecord,
    EncoderFitRecord,
    GateRecord,
    NoAnswerRecord,
    ProjectionRecord,
    QuerySetRecord,
    State,
)

SCHEMA_VERSION: Literal[2] = 2
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


class DataRecord(Record):
    """The data set that a release was calibrated on.

    Attributes:
        name: Of its folder.
        split: Of the qrels.
        documents: How many there are; queries of the split alone.
        queries: How many there are; queries of the split alone.
        answerable: Queries with and without a relevant document.
        unanswerable: Queries with and without a relevant document.
        truncated_documents: Longer than the encoder reads.
        sha256: Of the files.
        empty_documents: Left out, as they have neither title nor text.
        own_documents: Queries that are documents of the corpus under the same id, each left out of its own results.
            Either is None, and not written, if there is none.
    """

    name: str
    split: str
    documents: int
    queries: int
    answerable: int
    unanswerable: int
    truncated_documents: int
    sha256: dict[Literal["corpus", "queries", "qrels"], str]
    empty_documents: int | None = None
    own_documents: int | None = None

    @model_serializer(mode="wrap")
    def _without_absent_counts(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what most data sets do not have, so that digests of their releases stay what they were."""
        return {name: value for name, value in dump(self).items() if value is not None}


class EncoderRecord(EncoderConfig):
    """An encoder's own configuration, and one digest of its files.

    Attributes:
        sha256: Over graph, tokenizer and configuration. The other fields are those of EncoderConfig.
    """

    sha256: str


class IndexRecord(Record):
    """The index.

    Attributes:
        kind: Of the index.
        metric: Of the index.
        documents: How many vectors are in it.
        breadth: How much of an approximate index a query looks at (hnsw's ef, the lists probed), else None.
        recall: Share of the exact top `depth` that it finds, over the calibration queries; None for a flat float32
            index, which is exact.
        depth: None likewise.
    """

    kind: Kind
    metric: Literal["cosine"]
    documents: int
    breadth: int | None = None
    recall: float | None = None
    depth: int | None = None


class PolicyRecord(Record):
    """The policy in force, and why.

    Attributes:
        kind: Of the policy.
        tau: Unrounded, compared in float32; None for `none`.
        psi: The percentile of Γ that tau was taken at, with the method bootstrap.
        k: The K of the top-K.
        method: That chose tau.
        statement: The kind of guarantee that was asked for, "labels" where the loss is estimated from few judgements
            and a machine's scores, None for the method bootstrap, which certifies nothing.
        metric: That a loss is measured in.
        max_loss: That were asked for.
        max_empty: That were asked for.
        confidence: Of the guarantee.
        guarantee: One plain sentence that says what was certified, for whom and by which theorem, or why nothing could
            be.
        certificates: Of each limit.
        levels: Of each largest loss asked for, where there are several, the first of which is in force, unless strata
            lower its tau.
        choice: How `auto` came to this kind.
        evidence: What certified it, by query under the method bootstrap.
    """

    kind: PolicyKind
    tau: FiniteFloat | None
    psi: int | None
    k: int = Field(ge=1)
    method: Method
    statement: Statement | Literal["labels"] | None
    metric: Metric
    max_loss: float | None
    max_empty: float | None
    confidence: float
    guarantee: str
    certificates: list[Certificate]
    levels: list[Level] = Field(default_factory=list)
    choice: Choice | None
    evidence: EvidenceRecord | None = None

    @model_validator(mode="after")
    def _tau_fits_the_kind(self) -> Self:
        if (self.tau is None) != (self.kind == "none"):
            raise PydanticCustomError("tau", "a policy has a tau unless its kind is none")
        if self.tau is not None and abs(self.tau) > _MAX_FLOAT32:
            raise PydanticCustomError("tau", "tau is beyond float32, in which it is compared")
        return self


class BootstrapRecord(Record):
    """The draw of the bootstrap.

    Attributes:
        bootstraps: m rows.
        sample_size: l queries in each.
        seed: Of all random draws.
        holdout: Share of queries held out.
        overlap_percentile: Of the top-K similarities, which gives θ.
    """

    bootstraps: int
    sample_size: int
    seed: int
    holdout: float
    overlap_percentile: float


class Abstention(Record):
    """Queries that are answered with nothing; None where the split lists no unanswerable query.

    Attributes:
        answerable_empty: The shares.
        unanswerable_empty: The shares.
        auroc: Probability that an answerable query's best decision score is above an unanswerable one's; ties count
            half.
        aurc: Area under the risk-coverage curve, the mean share of wrong answers over all shares of queries answered.
    """

    answerable_empty: float
    unanswerable_empty: float | None
    auroc: float | None
    aurc: float | None


class MetricsRecord(Record):
    """Metrics of one part of the answerable queries, all in 0…1.

    Attributes:
        accuracy: Of the top-K.
        ndcg: Of the top-K.
        accuracy_at_tau: Of what the policy keeps.
        ndcg_at_tau: Of what the policy keeps.
        coe: See `drift/overlap.py`.
        roe: See `drift/overlap.py`.
        kept_fraction: Share of results that the policy keeps.
        abstention: Empty answers.
    """

    accuracy: Estimate
    ndcg: Estimate
    accuracy_at_tau: Estimate
    ndcg_at_tau: Estimate
    coe: Estimate
    roe: Estimate
    kept_fraction: float
    abstention: Abstention


class ErasureRecord(Record):
    """An erasure: the release was made of another one by leaving documents out; its figures are those of the other.

    Attributes:
        release: Id of the other one.
        documents: How many that were calibrated with are gone, those of earlier erasures included.
        recall: Of an approximate index, which is built anew, as in IndexRecord, but over the golden queries.
    """

    release: str
    documents: int = Field(ge=1)
    recall: float | None = None


class UpdateRecord(Record):
    """An update: the release has the documents of a newer corpus, and the threshold of an earlier release.

    Attributes:
        parent: Id of the release that was current, whose threshold and model of relevance were kept.
        calibrated: Id of the release that chose them; that is the parent unless it was made by an update too.
        updates: How many updates lie between that release and this one, this one included.
        added: Documents.
        changed: Documents.
        removed: Documents.
        queries: Queries that both releases can answer, and what counts as one draw among them.
        evidence: Queries that both releases can answer, and what counts as one draw among them.
        loss: Accuracy at τ of the parent less that of this release, of the average unit, with its limits, each
            one-sided at the confidence.
        margin: The largest loss that is allowed.
        holds: Whether a smaller loss is shown.
        forced: Whether the release was to be promoted all the same.
    """

    parent: str
    calibrated: str
    updates: int = Field(ge=1)
    added: int
    changed: int
    removed: int
    queries: int
    evidence: EvidenceRecord
    loss: Interval
    margin: float
    confidence: float
    holds: bool
    forced: bool


class FileRecord(Record):
    """One file of a release: its SHA-256, in hexadecimal, and its size in bytes."""

    sha256: str
    bytes: int


class Manifest(Record):
    """The whole manifest; its content digest leaves out release_id, created_at and parent.

    A record that did not exist when the release was written is None.

    Attributes:
        release_id: Of the release.
        created_at: Of the release.
        taugate_version: Of the release.
        parent: Id of the release that was current before.
        data: See their classes.
        encoder: That it was calibrated with.
        query_encoder: That answers queries where `encoder` is of documents alone; None where both have the same, and
            then not written.
        float32_encoder: That an int8 encoder of queries was made of, else None.
        projection: See their classes.
        index: See their classes.
        policy: See their classes.
        bootstrap: See their classes.
        metrics: See their classes.
        alternatives: See their classes.
        relevance: See their classes.
        isotropy: See their classes.
        query_set: See their classes.
        evidence: Of all answerable queries.
        strata: See their classes.
        calibration: How much evidence the release rests on.
        abstention: None where no query is refused as a whole.
        no_answer: How many queries without an answer still get one.
        drift: The smallest shift of the traffic that an alarm finds.
        erasure: None of a release as it was calibrated.
        update: None of a release that no update made, and then not written.
        labels: None where every label was taken by itself, and then not written.
        adaptation: None of an encoder that was not adapted, and then not written.
        encoder_fit: None if the encoder suits the texts, and then not written.
        engine: Where the vectors and documents are, None where they are in the release, and then not written.
        gate: See their classes.
        golden: Names of files.
        golden_tolerance: How far a score of a golden query may be from its record.
        reference: Names of files.
        files: Every other file, by path.
    """

    schema_version: Literal[2] = SCHEMA_VERSION
    release_id: str
    created_at: str
    taugate_version: str
    parent: str | None
    data: DataRecord
    encoder: EncoderRecord
    query_encoder: EncoderRecord | None = None
    float32_encoder: EncoderRecord | None = None
    projection: ProjectionRecord | None
    index: IndexRecord
    policy: PolicyRecord
    bootstrap: BootstrapRecord
    metrics: dict[Literal["calibration", "heldout"], MetricsRecord]
    alternatives: list[Alternative]
    relevance: RelevanceRecord | None
    isotropy: IsotropyRecord
    query_set: QuerySetRecord
    evidence: EvidenceRecord | None = None
    strata: StrataRecord | None = None
    calibration: CalibrationRecord | None = None
    abstention: AbstentionRecord | None = None
    no_answer: NoAnswerRecord | None = None
    drift: DriftRecord | None = None
    erasure: ErasureRecord | None = None
    update: UpdateRecord | None = None
    labels: LabelsRecord | None = None
    adaptation: AdaptationRecord | None = None
    encoder_fit: EncoderFitRecord | None = None
    engine: EngineRecord | None = None
    gate: list[GateRecord]
    golden: str
    golden_tolerance: float = Field(gt=0, lt=1)
    reference: str
    files: dict[str, FileRecord]

    @model_serializer(mode="wrap")
    def _without_absent_records(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what most releases do not have, so that their digests stay what they were."""
        fields: dict[str, Any] = dump(self)
        for name in ("query_encoder", "update", "labels", "adaptation", "encoder_fit", "engine"):
            if getattr(self, name) is None:
                fields.pop(name, None)
        return fields

    @property
    def query_encoders(self) -> dict[str, EncoderRecord]:
        """The encoders that may answer queries, by folder: the one that was calibrated, then the one it was made of."""
        of_queries = {QUERY_FOLDER: self.query_encoder, FLOAT32_FOLDER: self.float32_encoder}
        found = {folder: record for folder, record in of_queries.items() if record is not None}
        return found if self.query_encoder is not None else {ENCODER_FOLDER: self.encoder} | found

    @property
    def answering(self) -> EncoderRecord:
        """The encoder of queries that was calibrated."""
        return self.query_encoder or self.encoder

    @property
    def state(self) -> State:
        """Calibrated or provisional; a release from before there was such a record counts as calibrated."""
        return "calibrated" if self.calibration is None else self.calibration.state

    @field_validator("metrics")
    @classmethod
    def _calibration_is_there(cls, metrics: dict[str, MetricsRecord]) -> dict[str, MetricsRecord]:
        if "calibration" not in metrics:
            raise PydanticCustomError("no_calibration", "has no part named calibration")
        return metrics
