"""What a release says about itself: manifest.json, schema version 1 (contract §3)."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator, model_validator
from pydantic_core import PydanticCustomError

from retrieval.encoder import EncoderConfig
from retrieval.policy import PolicyKind

SCHEMA_VERSION: Literal[1] = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Data(_Part):
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


class IndexRecord(_Part):
    """The index; `documents` is the number of vectors in it."""

    kind: Literal["flat"]
    metric: Literal["cosine"]
    documents: int


class PolicyRecord(_Part):
    """The rule in force; tau is unrounded and compared in float32; psi is the percentile of Γ it was taken at."""

    kind: PolicyKind
    tau: FiniteFloat | None
    psi: int | None
    k: int = Field(ge=1)
    method: Literal["bootstrap"]
    metric: Literal["accuracy"]
    max_loss: float | None
    confidence: float

    @model_validator(mode="after")
    def _tau_fits_the_kind(self) -> Self:
        if (self.tau is None) != (self.kind == "none"):
            raise PydanticCustomError("tau", "a policy has a tau unless its kind is none")
        return self


class BootstrapRecord(_Part):
    """How the bootstrap was drawn: m rows of l queries."""

    bootstraps: int
    sample_size: int
    seed: int
    holdout: float
    overlap_percentile: float


class Interval(_Part):
    """A bootstrapped mean with its 2.5th and 97.5th percentiles."""

    mean: float
    lower: float
    upper: float


class Abstention(_Part):
    """Share of queries answered with nothing; None where the split lists no unanswerable query."""

    answerable_empty: float
    unanswerable_empty: float | None


class Metrics(_Part):
    """What was measured on one part of the answerable queries; all in 0…1."""

    accuracy: Interval
    ndcg: Interval
    accuracy_at_tau: Interval
    ndcg_at_tau: Interval
    coe: Interval
    roe: Interval
    kept_fraction: float
    abstention: Abstention


class FileRecord(_Part):
    """Digest and size in bytes of one file."""

    sha256: str
    bytes: int


class Manifest(_Part):
    """The whole manifest. Its content digest leaves out release_id, created_at and parent (ids and times)."""

    schema_version: Literal[1] = SCHEMA_VERSION
    release_id: str
    created_at: str
    taugate_version: str
    parent: str | None
    data: Data
    encoder: EncoderRecord
    projection: None
    index: IndexRecord
    policy: PolicyRecord
    bootstrap: BootstrapRecord
    metrics: dict[Literal["calibration", "heldout"], Metrics]
    gate: list[dict[str, Any]]
    golden: str
    reference: str
    files: dict[str, FileRecord]

    @field_validator("metrics")
    @classmethod
    def _calibration_is_there(cls, metrics: dict[str, Metrics]) -> dict[str, Metrics]:
        if "calibration" not in metrics:
            raise PydanticCustomError("no_calibration", "has no part named calibration")
        return metrics
