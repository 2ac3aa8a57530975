"""Why a release's policy may be trusted: certificates, the choice between policies, and how good `relevance` is."""

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, SerializerFunctionWrapHandler, model_serializer

from taugate.retrieval.policy.policy import PolicyKind


class Record(BaseModel):
    """Read-only, and without a field that this version does not know, or a number that JSON has no word for."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Interval(Record):
    """A mean between two limits: of a bootstrap, where nothing else is said, its 2.5th and 97.5th percentiles."""

    mean: float
    lower: float
    upper: float

    @classmethod
    def of_bootstraps(cls, each: NDArray[np.float64]) -> Self:
        """Of a metric of m bootstraps, (m,) (thresholds paper §2.1)."""
        lower, upper = np.percentile(each, [2.5, 97.5])
        return cls(mean=float(each.mean()), lower=float(lower), upper=float(upper))


class Estimate(Interval):
    """A metric; by_document: with whole documents drawn in place of queries, None where queries are the units."""

    by_document: Interval | None = None

    @model_serializer(mode="wrap")
    def _only_what_there_is(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        if self.by_document is None:
            del fields["by_document"]
        return fields


Method = Literal["bootstrap", "non-inferiority", "risk-control"]
# What risk control and non-inferiority say of the loss: with which probability it is small, or that it is on average.
Statement = Literal["high-probability", "expected-loss"]


class EvidenceRecord(Record):
    """What counts as one independent draw: a query, or all queries on one document.

    units: how many there are; design_effect: Σn² / Σn for n queries a document, the most that shared documents can
    cost; above 1.1 documents are the units.
    """

    unit: Literal["query", "document"]
    units: int
    design_effect: float


class Certificate(Record):
    """One limit that was certified, or could not be.

    limit: accuracy, ndcg or empty; most: the largest share of queries that may be lost; queries: how many certified it,
    on so many units, which count as effective_queries independent ones; found: mean of the metric without the cut,
    what a loss is taken from; loss: the share lost among them at τ; bound: what the guarantee's own calculation gives,
    at most `most` where it was certified; upper: the one-sided upper confidence limit of the loss, whatever the
    guarantee; queries_needed: fewer cannot certify it.
    """

    limit: str
    most: float
    queries: int
    effective_queries: float
    unit: Literal["query", "document"] = "query"
    units: int | None = None
    found: float | None = None
    loss: float
    bound: float
    upper: float | None = None
    queries_needed: int


class Level(Record):
    """One of several largest losses that were asked for at once: τ, None where it cannot be certified, and the bound.

    The confidence is that of all of them together (Bonferroni).
    """

    max_loss: float
    tau: float | None
    loss: float
    bound: float


class StratumRecord(Record):
    """The documents with one value of a field, and the queries that they answer; value: None for several together.

    tau: of a search filtered on the value, None where none is certified; tau_without_filter: the largest that this
    stratum would allow a search without a filter; queries: that certified it, on so many units;
    queries_needed: fewer cannot certify it; found: mean of the metric without the cut.
    """

    value: str | int | float | bool | None
    tau: FiniteFloat | None
    tau_without_filter: FiniteFloat | None
    queries: int
    units: int
    queries_needed: int
    found: float | None


class StrataRecord(Record):
    """What is certified by value of one metadata field.

    strata: those with queries enough; others: those without, together, None where there are none.
    """

    field: str
    strata: list[StratumRecord]
    others: StratumRecord | None
    other_values: list[str | int | float | bool]


class Candidate(Record):
    """A policy that was considered, and the mean share of results that it keeps, with its standard error.

    tau, queries, confidence: of its certified cut, where each was certified before one was taken, and that share is
    what the cut keeps; else the share is that near the allowed loss.
    """

    kind: PolicyKind
    kept_fraction: float
    standard_error: float
    tau: float | None = None
    queries: int | None = None
    confidence: float | None = None


class Choice(Record):
    """How `auto` chose.

    fit_queries: that fitted the model; choose_queries: that chose before anything was certified, with those that
    fitted, 0 where the certified cuts were compared; certify_queries: that certified the policy in force.
    """

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
    """Results with a relevance from `lower` up to `upper`: how many, their mean relevance, the share relevant.

    interval: the share with its 95 % interval, by document; None of a release from before there was one.
    """

    lower: float
    upper: float
    results: int
    relevance: float
    relevant: float
    interval: Interval | None = None


class RelevanceRecord(Record):
    """The model behind `relevance`, and how well what it says comes true on queries that it was not fitted on.

    regularization: C of the logistic regression, the one with the lowest cross-validated log_loss; recalibration: the
    map of what it says, fitted on other queries; part: which queries everything from there on is of, about so many
    documents; brier_skill: 1 − Brier score / that of always saying the share of relevant results; error: expected
    calibration error of all results, error_of_likely: of those that say .2 or more, None where there is none. Intervals
    are 95 % ones, by document. What a release from before there was such a figure lacks is None.
    """

    model: Literal["logistic"] = "logistic"
    features: list[str]
    fit_queries: int
    regularization: float
    log_loss: float
    recalibration: Literal["beta", "platt", "none"] | None = None
    part: Literal["calibration", "heldout"]
    queries: int
    documents: int | None = None
    expected_calibration_error: float
    brier: Interval | None = None
    brier_skill: Interval | None = None
    error: Interval | None = None
    error_of_likely: Interval | None = None
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
