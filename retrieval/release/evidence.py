"""Why a release's policy may be trusted: certificates, the choice between policies, and how good `relevance` is."""

from typing import Literal

from pydantic import Field

from retrieval.policy import PolicyKind
from retrieval.release.interval import Record

Method = Literal["bootstrap", "non-inferiority", "risk-control"]
# What risk control and non-inferiority say of the loss: with which probability it is small, or that it is on average.
Statement = Literal["high-probability", "expected-loss"]


class Certificate(Record):
    """One limit that was certified, or could not be.

    limit: accuracy, ndcg or empty; most: the largest share that may be lost; queries: how many certified it, which
    count as effective_queries independent ones; loss: the share lost among them at τ; bound: what the guarantee's own
    calculation gives, at most `most` where it was certified; queries_needed: fewer cannot certify it.
    """

    limit: str
    most: float
    queries: int
    effective_queries: float
    loss: float
    bound: float
    queries_needed: int


class Candidate(Record):
    """A policy that was considered: its mean share of results kept near the allowed loss, with its standard error."""

    kind: PolicyKind
    kept_fraction: float
    standard_error: float


class Choice(Record):
    """How `auto` chose: sizes of the three disjoint parts, and what each policy kept of the first two's results."""

    fit_queries: int
    choose_queries: int
    certify_queries: int
    candidates: list[Candidate]


class Alternative(Record):
    """A rule that is not in force: what it would keep and lose, on the queries of the last part of `metrics`."""

    method: Method
    statement: Statement | None
    policy: PolicyKind
    tau: float | None
    psi: int | None
    max_loss: float | None
    max_empty: float | None
    guarantee: str | None
    kept_fraction: float
    loss: float


class ReliabilityBin(Record):
    """Results with a relevance from `lower` up to `upper`: how many, their mean relevance, the share relevant."""

    lower: float
    upper: float
    results: int
    relevance: float
    relevant: float


class RelevanceRecord(Record):
    """The model behind `relevance`, and how well what it says comes true on queries that it was not fitted on.

    regularization: C of the logistic regression, the one with the lowest cross-validated log_loss; part: which queries
    the expected calibration error and the bins are of.
    """

    model: Literal["logistic"] = "logistic"
    features: list[str]
    fit_queries: int
    regularization: float
    log_loss: float
    part: Literal["calibration", "heldout"]
    queries: int
    expected_calibration_error: float
    bins: list[ReliabilityBin] = Field(repr=False)


class IsotropyRecord(Record):
    """Isotropy of the document vectors: I_A (Mu et al., second order) and I_B (IsoScore), thresholds paper §2.5."""

    i_a: float
    i_b: float


class Shift(Record):
    """How far a mean has moved. points: of a share, or of similarity; effect: Cohen's h of what it moves most."""

    points: float
    effect: float


class Shifts(Record):
    """The smallest shift that an alarm finds, down and up; None where no shift that way is found."""

    lower: Shift | None
    higher: Shift | None


class DriftRecord(Record):
    """What the alarms find, nine times out of ten, within so many queries (of COE: judgements) at the default settings.

    For independent queries in blocks of `block` distinct ones. signals: shifts of the share that each signal is the
    mean of; of `topk_similarity`, of the similarity of all results of all queries.
    """

    within: int
    block: int
    signals: dict[str, Shifts]
