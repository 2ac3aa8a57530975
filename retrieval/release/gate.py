"""What the gate says of a candidate that is cheaper than the exact, unprojected float32 baseline."""

from typing import Literal

from taugate.retrieval.release.evidence import EvidenceRecord
from taugate.retrieval.release.interval import Interval, Record

Verdict = Literal["admitted", "worse", "cannot tell"]
# Whose mean loss was shown to be below the margin: that of the average document bounds each document's share, however
# many queries it has.
GateStatement = Literal["query", "document", "document and query"]


class PairedLoss(Record):
    """A metric of the baseline and of the candidate on the same queries.

    loss: baseline − candidate, of the average unit, with its limits, each one-sided at the gate's confidence; p: of a
    loss of the margin or more.
    """

    baseline: float
    candidate: float
    loss: Interval
    p: float


class ProjectionRecord(Record):
    """The projection in force.

    retention: r as asked for or chosen; dimension: d' of the vectors afterwards; queries: that it was fitted on; rank:
    components that these have; explained_variance: share of the queries' variance that is kept; folds: of the
    cross-validation that the gate judged.
    """

    kind: Literal["query-pca"] = "query-pca"
    retention: float
    dimension: int
    queries: int
    rank: int
    explained_variance: float
    folds: int


class GateRecord(Record):
    """A candidate, admitted or not.

    p_adjusted: of the worse of the two metrics, adjusted for all candidates tried; n: queries, in so many clusters that
    share a document; verdict: "worse" where the loss found is the margin or more; evidence: what counts as one draw;
    statement: whose mean loss is below the margin; least: the smallest loss that these queries could have excluded, of
    a candidate that changes nothing; queries_needed: so many like these would tell, where these cannot; gain: what the
    candidate saves, each figure with that of the same without it, in the same run.
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
