"""Records of how a release searches, and of the gate's evidence: the lexical part, the projection, the candidates."""

import hashlib
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from taugate.retrieval.index.names import MAX_WEIGHT
from taugate.retrieval.release.evidence import EvidenceRecord, Interval, Record

if TYPE_CHECKING:  # loads FAISS
    from taugate.retrieval.index.lexical import LexicalIndex

Verdict = Literal["admitted", "worse", "cannot tell"]
# The unit whose mean loss was shown to be below the margin. For the average document, this limits each document's
# weight, however many queries it has.
GateStatement = Literal["query", "document", "document and query"]


class PairedLoss(Record):
    """A metric of the baseline and of a candidate on the same queries.

    Attributes:
        baseline: Mean of the baseline.
        candidate: Mean of the candidate.
        loss: Baseline − candidate for the average unit, with limits that are one-sided at the gate's confidence.
        p: p-value of a loss of the margin or more.
    """

    baseline: float
    candidate: float
    loss: Interval
    p: float


class LexicalRecord(Record):
    """The lexical part of the score, cosine + weight · share.

    Attributes:
        weight: Weight of the lexical share.
        k1: Saturation of a term's count in BM25.
        b: Share of the length normalisation in BM25.
        terms: Number of distinct terms in the documents.
        sha256: Digest of the file with the index of the words.
    """

    weight: float = Field(gt=0, le=MAX_WEIGHT)
    k1: float = Field(ge=0)
    b: float = Field(ge=0, le=1)
    terms: int
    sha256: str

    @classmethod
    def of(cls, words: "LexicalIndex", weight: float) -> Self:
        """Record the lexical part of a search."""
        return cls(
            weight=weight,
            k1=words.statistics.k1,
            b=words.statistics.b,
            terms=len(words.vocabulary),
            sha256=hashlib.sha256(words.to_bytes()).hexdigest(),
        )


ProjectionKind = Literal["query-pca", "query-document-pca"]


def projection_name(kind: ProjectionKind, retention: float, *, centred: bool) -> str:
    """Return the name of a projection among the gate's candidates."""
    return f"{kind}{'' if centred else ', not centred'}, retention {retention:g}"


class ProjectionRecord(Record):
    """The projection in force.

    Attributes:
        kind: What the PCA was fitted on: queries, or queries and documents.
        centred: False for x ↦ xW; None for x ↦ (x − μ)W.
        accepted: False if the settings file took it although the gate did not accept it; else None.
        retention: r, requested or chosen.
        dimension: d', the dimension after projection.
        queries: Number of queries that it was fitted on.
        rank: Number of components that these queries have.
        explained_variance: Share of the queries' variance that is kept.
        folds: Number of folds of the cross-validation that the gate evaluated.
    """

    kind: ProjectionKind = "query-pca"
    centred: Literal[False] | None = None
    accepted: Literal[False] | None = None
    retention: float
    dimension: int
    queries: int
    rank: int
    explained_variance: float
    folds: int

    @property
    def candidate(self) -> str:
        """Name among the gate's candidates."""
        return projection_name(self.kind, self.retention, centred=self.centred is None)


class GateRecord(Record):
    """A candidate of the gate, accepted or not.

    Attributes:
        candidate: Name of the candidate.
        kind: What the candidate changes.
        admitted: Whether the gate accepted it.
        accuracy: Loss of accuracy.
        ndcg: Loss of NDCG.
        p_adjusted: p-value of the worse of the two metrics, adjusted for all tried candidates.
        margin: Largest allowed loss.
        confidence: Confidence of the decision.
        n: Number of queries.
        clusters: Number of clusters of queries that share a document.
        verdict: Decision; "worse" if the measured loss is the margin or more.
        evidence: Unit of evidence.
        statement: Unit whose mean loss is below the margin.
        least: Smallest loss that these queries could have excluded for a candidate that changes nothing.
        queries_needed: Number of such queries that would decide, if these cannot.
        gain: Savings by the candidate, each figure beside that of the same run without it.
        processor: Instructions that the gain of a precision was measured with: avx512 or avx2; None for any
            other candidate.
    """

    candidate: str
    kind: str
    admitted: bool
    accuracy: PairedLoss
    ndcg: PairedLoss
    p_adjusted: float
    margin: float
    confidence: float
    n: int
    clusters: int
    verdict: Verdict | None = None
    evidence: EvidenceRecord | None = None
    statement: GateStatement | None = None
    least: float | None = None
    queries_needed: int | None = None
    gain: dict[str, float]
    processor: str | None = None


class SkippedCandidate(Record):
    """A candidate that was not possible, for `reason`: the encoder or the machine of the calibration cannot have it."""

    candidate: str
    kind: str
    reason: str
