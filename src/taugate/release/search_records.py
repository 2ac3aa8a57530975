"""Records of how a release searches, in one stage or two, and of the evidence for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import orjson
from pydantic import Field, TypeAdapter, ValidationError

from taugate.errors import ReleaseError
from taugate.policy.score_relevance import RerankerScale
from taugate.release.encoder import Precision
from taugate.release.evidence import EvidenceRecord, Interval, Record, RelevanceRecord
from taugate.release.names import MAX_WEIGHT
from taugate.release.outcome_records import MetricsRecord, PolicyRecord
from taugate.release.refusal_records import RefusalRecord
from taugate.storage.files import read_bounded

Verdict = Literal["admitted", "worse", "cannot tell"]
# The unit whose mean loss was shown to be below the margin. For the average document, this limits each document's
# weight, however many queries it has.
GateStatement = Literal["query", "document", "document and query"]

RerankerKind = Literal["cross-encoder", "late-interaction", "endpoint"]


@dataclass(frozen=True, slots=True)
class KnownPair:
    """A pair of a query and a document with its score at calibration, to check a reranker."""

    query: str
    document: str
    score: float


_PAIRS = TypeAdapter(list[KnownPair])
_MAX_PAIRS_BYTES = 1 << 20  # a hundred times what a calibration writes


class PairedLoss(Record):
    """A metric of the baseline and of a candidate on the same queries."""

    baseline: float  # mean of the baseline
    candidate: float  # mean of the candidate
    loss: Interval  # baseline − candidate for the average unit, with limits that are one-sided at the gate's confidence
    p: float  # p-value of a loss of the margin or more


class LexicalRecord(Record):
    """The lexical part of the score, cosine + weight · share."""

    weight: float = Field(gt=0, le=MAX_WEIGHT)  # weight of the lexical share
    k1: float = Field(ge=0)  # saturation of a term's count in BM25
    b: float = Field(ge=0, le=1)  # share of the length normalisation in BM25
    terms: int  # number of distinct terms in the documents
    sha256: str  # digest of the file with the index of the words


ProjectionKind = Literal["query-pca", "query-document-pca"]


def projection_name(kind: ProjectionKind, retention: float, *, centred: bool) -> str:
    """Return the name of a projection among the gate's candidates."""
    return f"{kind}{'' if centred else ', not centred'}, retention {retention:g}"


class ProjectionRecord(Record):
    """The projection in force."""

    kind: ProjectionKind = "query-pca"  # what the PCA was fitted on: queries, or queries and documents
    centred: Literal[False] | None = None  # False for x ↦ xW; None for x ↦ (x − μ)W
    # False if the settings file took it although the gate did not accept it; else None.
    accepted: Literal[False] | None = None
    retention: float  # r, requested or chosen
    dimension: int  # d', the dimension after projection
    queries: int  # number of queries that it was fitted on
    rank: int  # number of components that these queries have
    explained_variance: float  # share of the queries' variance that is kept
    folds: int  # number of folds of the cross-validation that the gate evaluated

    @property
    def candidate(self) -> str:
        """Name among the gate's candidates."""
        return projection_name(self.kind, self.retention, centred=self.centred is None)


class GateRecord(Record):
    """A candidate of the gate, accepted or not."""

    candidate: str
    kind: str  # what the candidate changes
    admitted: bool
    accuracy: PairedLoss
    ndcg: PairedLoss
    p_adjusted: float  # p-value of the worse of the two metrics, adjusted for all tried candidates
    margin: float  # largest allowed loss
    confidence: float  # confidence of the decision
    n: int
    clusters: int  # number of clusters of queries that share a document
    verdict: Verdict | None = None  # decision; "worse" if the measured loss is the margin or more
    evidence: EvidenceRecord | None = None
    statement: GateStatement | None = None  # unit whose mean loss is below the margin
    # Smallest loss that these queries could have excluded for a candidate that changes nothing.
    least: float | None = None
    queries_needed: int | None = None  # number of such queries that would decide, if these cannot
    gain: dict[str, float]  # savings by the candidate, each figure beside that of the same run without it
    # Instructions that the gain of a precision was measured with: avx512 or avx2; None for any other candidate.
    processor: str | None = None
    decided_by: str | None = None  # the lost query that decides, if losses cannot be told from the margin; else None


class SkippedCandidate(Record):
    """A candidate that was not judged, for `reason`: it is not possible here, or not cheap enough."""

    candidate: str
    kind: str  # what the candidate changes
    reason: str  # why it was not judged
    # What it would save, each figure beside that of the baseline; None if it is not possible.
    gain: dict[str, float] | None = None


class FirstStageRecord(Record):
    """The first stage alone, calibrated on the same queries. Fields are as in the manifest."""

    policy: PolicyRecord  # its cut, by its own scores
    relevance: RelevanceRecord | None = None  # its model of relevance
    refusal: RefusalRecord | None = None  # what refuses queries as a whole
    metrics: dict[Literal["calibration", "heldout"], MetricsRecord]  # what its cut keeps and loses


class TokenVectorsRecord(Record):
    """The token vectors of the documents, for late interaction; their digest is that of their file."""

    dtype: Literal["int8"]  # type of a component; each vector has a scale in float32, too
    dimension: int = Field(ge=1)  # components of a vector
    count: int = Field(ge=1)
    bytes_per_passage: float = Field(gt=0)  # mean size of a passage's vectors in bytes, with their scales

    @classmethod
    def of(cls, dimension: int, counts: Sequence[int]) -> Self:
        """Describe the vectors of documents that have so many each."""
        size = sum(counts) * (dimension + np.dtype(np.float32).itemsize)
        return cls(dtype="int8", dimension=dimension, count=sum(counts), bytes_per_passage=size / len(counts))


class SecondStageRecord(Record):
    """The second stage: the manifest's policy, relevance, refusals and metrics are of its scores."""

    kind: RerankerKind
    name: str  # name of the model, or of the endpoint's model
    # Name of the model in requests to an endpoint; None without an endpoint, or if requests name none.
    model: str | None = None
    sha256: str  # digest of the files of the model, or of the scores that an endpoint gave the known pairs
    scores: RerankerScale  # whether scores are at least 0, or any numbers, such as log-odds
    candidates: int = Field(ge=1)  # number of the first stage's results that are scored
    # Weight of the first stage's score in the score that ranks; 0, and not written, if the reranker's score alone does.
    first_stage_weight: float = Field(default=0.0, ge=0, exclude_if=lambda weight: not weight)
    # Precision of the model; not written if it is float32.
    precision: Precision = Field(default="float32", exclude_if=lambda value: value == "float32")
    tolerance: float = Field(gt=0, lt=1)  # largest allowed difference of a known pair's score
    # Share of pairs of an answerable and an unanswerable query in which the former has the higher best score (AUROC),
    # of the first stage and of the second; None without unanswerable queries.
    separation: PairedLoss | None = None
    # Token vectors of the documents; None unless it is late interaction.
    token_vectors: TokenVectorsRecord | None = None
    first: FirstStageRecord  # the first stage alone


def candidate_name(name: str, candidates: int, precision: Precision) -> str:
    """Return the name of a second stage in the gate's records."""
    cheaper = "" if precision == "float32" else f", {precision}"
    return f"second stage {name}, {candidates} candidates{cheaper}"


def write_pairs(path: Path, pairs: list[KnownPair]) -> None:
    """Write known pairs as JSON."""
    path.write_bytes(orjson.dumps(pairs, option=orjson.OPT_INDENT_2) + b"\n")


def read_pairs(path: Path) -> list[KnownPair]:
    """Read the file that `write_pairs` wrote; raises ReleaseError if it holds anything else."""
    try:
        return _PAIRS.validate_json(read_bounded(path, _MAX_PAIRS_BYTES))
    except (OSError, ValidationError) as error:
        raise ReleaseError(f"{path}: does not hold pairs with scores; calibrate again") from error
