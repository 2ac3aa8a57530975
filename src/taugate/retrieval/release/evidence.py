"""Records of a manifest on why its policy can be trusted: certificates, the choice of a policy, and measurements."""

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, SerializerFunctionWrapHandler, model_serializer

from taugate.retrieval.policy.policy import PolicyKind


class Record(BaseModel):
    """Base of all records: read-only, without unknown fields, and without NaN or infinity, which JSON cannot write."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Interval(Record):
    """A mean between two limits, of a 95 % interval where nothing else is said.

    Attributes:
        mean: The estimate.
        lower: The limits; of a bootstrap, its 2.5th and 97.5th percentiles.
        upper: The limits; of a bootstrap, its 2.5th and 97.5th percentiles.
    """

    mean: float
    lower: float
    upper: float

    @classmethod
    def of_bootstraps(cls, each: NDArray[np.float64]) -> Self:
        """Make the percentile interval of a metric's bootstraps, (m,) float64 (thresholds paper §2.1)."""
        lower, upper = np.percentile(each, [2.5, 97.5])
        return cls(mean=float(each.mean()), lower=float(lower), upper=float(upper))


class Estimate(Interval):
    """A metric with its interval.

    Attributes:
        by_document: The same with whole documents drawn in place of queries; None where queries are the units.
    """

    by_document: Interval | None = None

    @model_serializer(mode="wrap")
    def _without_absent_interval(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        if self.by_document is None:
            del fields["by_document"]
        return fields


# The way τ was chosen; "fixed" is a τ that was given.
Method = Literal["bootstrap", "non-inferiority", "risk-control", "fixed"]
# The kind of guarantee on the loss: that it is small with high probability, or on average.
Statement = Literal["high-probability", "expected-loss"]


class EvidenceRecord(Record):
    """The unit of evidence, which counts as one independent draw: a query, or all queries on one document.

    Attributes:
        unit: Which of the two.
        units: How many there are.
        design_effect: Σn² / Σn for n queries a document, the most that shared documents can cost; above 1.1 documents
            are the units.
    """

    unit: Literal["query", "document"]
    units: int
    design_effect: float


class Certificate(Record):
    """A limit on a loss that was certified, or could not be.

    Attributes:
        limit: Accuracy, ndcg or empty.
        most: The largest share of queries that may be lost.
        queries: How many certified it.
        effective_queries: Independent queries that these count as.
        unit: Of evidence.
        units: Of evidence.
        found: Mean of the metric without the cut, from which a loss is taken.
        loss: The share lost at τ.
        bound: Of the loss, by the guarantee's own calculation, at most `most` where it was certified.
        upper: The one-sided upper confidence limit of the loss, whatever the guarantee.
        queries_needed: Fewer cannot certify it.
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
    """One of several largest losses that were asked for at once, with the confidence of all together (Bonferroni).

    Attributes:
        max_loss: That was asked for.
        tau: τ, None where it cannot be certified.
        loss: That was found.
        bound: Of the loss.
    """

    max_loss: float
    tau: float | None
    loss: float
    bound: float


class StratumRecord(Record):
    """A stratum: the documents with one value of a field, and the queries that they answer.

    Attributes:
        value: Of the field; None for several values together.
        tau: Of a search filtered on the value, None where none is certified.
        tau_without_filter: The largest that this stratum would allow a search without a filter.
        queries: That certified it.
        units: Of evidence.
        queries_needed: Fewer cannot certify it.
        found: Mean of the metric without the cut.
    """

    value: str | int | float | bool | None
    tau: FiniteFloat | None
    tau_without_filter: FiniteFloat | None
    queries: int
    units: int
    queries_needed: int
    found: float | None


class StrataRecord(Record):
    """Thresholds that are certified by value of one metadata field.

    Attributes:
        field: Its name.
        strata: Those with enough queries.
        others: Those without, together, None where there are none.
        other_values: Of the field, that are in `others`.
    """

    field: str
    strata: list[StratumRecord]
    others: StratumRecord | None
    other_values: list[str | int | float | bool]


class PolicyCandidate(Record):
    """A policy that was considered.

    Attributes:
        kind: Of the policy.
        kept_fraction: Mean share of results that it keeps: at its certified cut, where each candidate was certified
            before one was taken, else near the allowed loss.
        standard_error: Of that share.
        tau: Of the certified cut, None without one.
        queries: Of the certified cut, None without one.
        confidence: Of the certified cut, None without one.
    """

    kind: PolicyKind
    kept_fraction: float
    standard_error: float
    tau: float | None = None
    queries: int | None = None
    confidence: float | None = None


class Choice(Record):
    """The choice that `auto` made between policies.

    Attributes:
        fit_queries: That fitted the model.
        choose_queries: That chose before anything was certified, with those that fitted; 0 where the certified cuts
            were compared.
        certify_queries: That certified the policy in force.
        candidates: The policies that were considered.
    """

    fit_queries: int
    choose_queries: int
    certify_queries: int
    candidates: list[PolicyCandidate]


class Alternative(Record):
    """A rule that is not in force, measured on the queries of the last part of `metrics`.

    Attributes:
        method: As in PolicyRecord.
        statement: As in PolicyRecord.
        policy: As in PolicyRecord.
        tau: As in PolicyRecord.
        psi: As in PolicyRecord.
        max_loss: As in PolicyRecord.
        max_empty: As in PolicyRecord.
        guarantee: As in PolicyRecord.
        kept_fraction: Share of results that it would keep.
        loss: That it would have.
    """

    method: Method
    statement: Statement | Literal["labels"] | None
    policy: PolicyKind
    tau: float | None
    psi: int | None
    max_loss: float | None
    max_empty: float | None
    guarantee: str | None
    kept_fraction: float
    loss: float


class ReliabilityBin(Record):
    """A bin of a reliability diagram: results with an estimated relevance from `lower` up to `upper`.

    Attributes:
        results: How many.
        relevance: Their mean estimate.
        relevant: The share that is relevant.
        interval: The share with its 95 % interval, by document; None in a release from before there was one.
    """

    lower: float
    upper: float
    results: int
    relevance: float
    relevant: float
    interval: Interval | None = None


class RelevanceRecord(Record):
    """The model behind `relevance`, and how reliable it is on queries that it was not fitted on.

    Intervals are 95 % ones, by document. A figure that did not exist when the release was written is None.

    Attributes:
        model: Its kind.
        features: Their names.
        fit_queries: That it was fitted on.
        regularization: C of the logistic regression, the one with the lowest cross-validated log_loss.
        log_loss: Of that.
        recalibration: The map of its log-odds, fitted on other queries.
        part: The queries that all that follows was measured on.
        queries: How many those are, and are about.
        documents: How many those are, and are about.
        expected_calibration_error: Of all results.
        brier: Brier score.
        brier_skill: 1 − Brier score / that of always estimating the share of relevant results.
        error: Expected calibration error with its interval.
        error_of_likely: The same of results with an estimate of 0.2 or more, None where there are none.
        bins: Of the reliability diagram.
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
    """Isotropy of the document vectors (thresholds paper §2.5).

    Attributes:
        i_a: I_A (Mu et al., second order).
        i_b: I_B (IsoScore).
    """

    i_a: float
    i_b: float


class Shift(Record):
    """A shift of a mean.

    Attributes:
        points: By which a share, or similarity, moves.
        effect: Cohen's h of the variable that it moves most.
    """

    points: float
    effect: float


class Shifts(Record):
    """The smallest shifts that an alarm finds.

    Attributes:
        lower: Down and up; None where no shift that way is found.
        higher: Down and up; None where no shift that way is found.
    """

    lower: Shift | None
    higher: Shift | None


class DriftRecord(Record):
    """The shifts that the drift alarms find nine times out of ten at the default settings, for independent queries.

    Attributes:
        within: How many queries that takes at most; of COE, judgements.
        block: Distinct queries in a block.
        signals: Shifts of the share that each signal is the mean of; for `topk_similarity`, of the similarity of all
            results.
    """

    within: int
    block: int
    signals: dict[str, Shifts]
