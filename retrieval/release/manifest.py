"""What a release says about itself: manifest.json, schema version 2 (docs/calibration.md)."""

from typing import Literal, Self

import numpy as np
from pydantic import Field, FiniteFloat, field_validator, model_validator
from pydantic_core import PydanticCustomError

from taugate.retrieval.encoder.encoder import EncoderConfig
from taugate.retrieval.index.kinds import Kind
from taugate.retrieval.policy.policy import Metric, PolicyKind
from taugate.retrieval.release.evidence import (
    Alternative,
    Certificate,
    Choice,
    DriftRecord,
    Estimate,
    EvidenceRecord,
    IsotropyRecord,
    Level,
    Method,
    Record,
    RelevanceRecord,
    Statement,
    StrataRecord,
)
from taugate.retrieval.release.records import (
    AbstentionRecord,
    CalibrationRecord,
    GateRecord,
    NoAnswerRecord,
    ProjectionRecord,
    QuerySetRecord,
    State,
)

SCHEMA_VERSION: Literal[2] = 2
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


class Data(Record):
    """The data set a release was calibrated on; sha256 is keyed by corpus, queries and qrels."""

    name: str
    split: str
    documents: int
    queries: int
    answerable: int
    unanswerable: int
    truncated_documents: int
    sha256: dict[Literal["corpus", "queries", "qrels"], str]


class EncoderRecord(EncoderConfig):
    """The encoder's own configuration and the digest of its files."""

    sha256: str


class IndexRecord(Record):
    """The index; `documents` is the number of vectors in it.

    breadth: how much of an approximate index a query looks at (hnsw's ef, the lists probed); recall: share of the exact
    top `depth` that it finds, over the calibration queries; None for a flat float32 index, which is exact.
    """

    kind: Kind
    metric: Literal["cosine"]
    documents: int
    breadth: int | None = None
    recall: float | None = None
    depth: int | None = None


class PolicyRecord(Record):
    """The rule in force, and why.

    tau: unrounded, compared in float32; psi: the percentile of Γ it was taken at, with the method bootstrap; statement:
    the kind of guarantee that was asked for, None for the method bootstrap, which certifies nothing; guarantee:
    one plain sentence that says what was certified, for whom and by which theorem, or why nothing could be; choice:
    how `auto` came to this kind; levels: of each largest loss asked for, where there are several, the first of which is
    in force, unless strata lower its tau; evidence: what certified it, by query under the method bootstrap.
    """

    kind: PolicyKind
    tau: FiniteFloat | None
    psi: int | None
    k: int = Field(ge=1)
    method: Method
    statement: Statement | None
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
        if self.tau is not None and abs(self.tau) > _LARGEST_FLOAT32:
            raise PydanticCustomError("tau", "tau is beyond float32, in which it is compared")
        return self


class BootstrapRecord(Record):
    """How the bootstrap was drawn: m rows of l queries."""

    bootstraps: int
    sample_size: int
    seed: int
    holdout: float
    overlap_percentile: float


class Abstention(Record):
    """Share of queries answered with nothing; None where the split lists no unanswerable query.

    auroc: probability that an answerable query's best decision score is above an unanswerable one's (ties count half);
    aurc: area under the risk-coverage curve, the mean share of wrong answers over all shares of queries answered.
    """

    answerable_empty: float
    unanswerable_empty: float | None
    auroc: float | None
    aurc: float | None


class Metrics(Record):
    """What was measured on one part of the answerable queries; all in 0…1."""

    accuracy: Estimate
    ndcg: Estimate
    accuracy_at_tau: Estimate
    ndcg_at_tau: Estimate
    coe: Estimate
    roe: Estimate
    kept_fraction: float
    abstention: Abstention


class ErasureRecord(Record):
    """What was left out of a release that another was made of; all that was measured is of the calibration before.

    release: the one it was made of; documents: how many that were calibrated with are gone, those of earlier erasures
    included; recall: of an approximate index, which is built anew, as in IndexRecord, but over the golden queries.
    """

    release: str
    documents: int = Field(ge=1)
    recall: float | None = None


class FileRecord(Record):
    """Digest and size in bytes of one file."""

    sha256: str
    bytes: int


class Manifest(Record):
    """The whole manifest. Its content digest leaves out release_id, created_at and parent (ids and times).

    evidence: of all answerable queries; calibration: how much it rests on; drift: the smallest shift of the traffic
    that an alarm finds; no_answer: how many queries without an answer still get one; each None of a release from before
    there was such a record. abstention: None where no query is refused as a whole.
    encoder: that it was calibrated with; float32_encoder: that this was made of, where it is in int8; golden_tolerance:
    how far a score of a golden query may be from its record. erasure: None of a release as it was calibrated.
    """

    schema_version: Literal[2] = SCHEMA_VERSION
    release_id: str
    created_at: str
    taugate_version: str
    parent: str | None
    data: Data
    encoder: EncoderRecord
    float32_encoder: EncoderRecord | None = None
    projection: ProjectionRecord | None
    index: IndexRecord
    policy: PolicyRecord
    bootstrap: BootstrapRecord
    metrics: dict[Literal["calibration", "heldout"], Metrics]
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
    gate: list[GateRecord]
    golden: str
    golden_tolerance: float = Field(gt=0, lt=1)
    reference: str
    files: dict[str, FileRecord]

    @property
    def state(self) -> State:
        """What is from before there was such a record counts as calibrated."""
        return "calibrated" if self.calibration is None else self.calibration.state

    @field_validator("metrics")
    @classmethod
    def _calibration_is_there(cls, metrics: dict[str, Metrics]) -> dict[str, Metrics]:
        if "calibration" not in metrics:
            raise PydanticCustomError("no_calibration", "has no part named calibration")
        return metrics
