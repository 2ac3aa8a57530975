"""Records of the evidence for a policy in the manifest: certificates, the choice of a policy, and measurements."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from taugate.policy.names import PolicyKind
from taugate.release.names import Method, Statement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_FLOAT32 = (2 - 2**-23) * 2.0**127  # thresholds are compared in float32


class Record(BaseModel):
    """Base of all records: read-only, without unknown fields, and without NaN or infinity, which JSON lacks.

    A field that is None is not written, whatever record it is in, and one that is not written is None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def model_dump(self, *, exclude_none: bool = True, **options: Any) -> dict[str, Any]:  # noqa: ANN401 (pydantic's)
        """Return the record as a dictionary; see `BaseModel.model_dump`."""
        return super().model_dump(exclude_none=exclude_none, **options)

    def model_dump_json(self, *, exclude_none: bool = True, **options: Any) -> str:  # noqa: ANN401 (pydantic's)
        """Return the record as JSON; see `BaseModel.model_dump_json`."""
        return super().model_dump_json(exclude_none=exclude_none, **options)


class Interval(Record):
    """A mean with two limits, which are those of a 95 % interval unless a field says otherwise."""

    mean: float = Field(description="estimate")
    lower: float = Field(description="lower limit; for a bootstrap, the 2.5th percentile")
    upper: float = Field(description="upper limit; for a bootstrap, the 97.5th percentile")

    @classmethod
    def of_bootstraps(cls, values: "NDArray[np.float64]") -> Self:
        """Return the percentile interval of a metric's bootstraps, (m,) float64 (thresholds paper §2.1)."""
        import numpy as np  # which commands that only read records do without

        lower, upper = np.percentile(values, [2.5, 97.5])
        return cls(mean=float(values.mean()), lower=float(lower), upper=float(upper))


class Estimate(Interval):
    """A metric with its interval.

    Attributes:
        by_document: Interval with documents drawn instead of queries; None if queries are the units.
    """

    by_document: Interval | None = None


# How labels were drawn: queries one by one, or documents with all queries about them.
Drawn = Literal["queries", "documents"]


class EvidenceRecord(Record):
    """The unit of evidence, which counts as one independent draw: a query, or all queries on one document.

    Attributes:
        unit: Unit of evidence.
        units: Number of units.
        design_effect: Σn² / Σn for n queries per document, the largest possible effect of shared documents. Above 1.1,
            documents are the units.
        drawn: How the labels were drawn; None if documents are assumed.
    """

    unit: Literal["query", "document"]
    units: int
    design_effect: float
    drawn: Drawn | None = None


class Certificate(Record):
    """A limit on a loss that was certified, or that could not be certified.

    Attributes:
        limit: Limited metric: accuracy, ndcg or empty.
        most: Largest allowed share of lost queries.
        queries: Number of queries behind the certificate.
        effective_queries: Number of independent queries that these count as.
        unit: Unit of evidence.
        units: Number of units.
        found: Mean of the metric without the cut; losses are relative to it.
        loss: Share lost at τ.
        bound: Bound on the loss as the guarantee computes it; at most `most` if certified.
        upper: One-sided upper confidence limit of the loss, whatever the guarantee.
        queries_needed: Smallest number of queries that can certify the limit.
        count_at_most: Largest number of queries that a document counts for in `loss`, `bound`, `upper` and `found`;
            None if every query counts as one.
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
    count_at_most: int | None = None


class Shortage(Record):
    """What is missing if no limit could be certified with high probability.

    Attributes:
        lowest: Ids of the labelled queries whose best relevant result scores lowest, at most 20: they hold τ down.
        options: Options of `taugate calibrate` with which these labels certify the limit.
        queries: Further queries, about documents without any, with a chance of 8 in 10 to certify the limit; None if
            unknown, or if it is impossible.
        documents: Number of documents that the further queries are about.
        min_loss: Smallest loss that any test can certify with the documents of the corpus, however many queries are
            labelled; None if the requested limit is possible.
    """

    lowest: list[str]
    options: list[str] = Field(default_factory=list)
    queries: int | None = None
    documents: int | None = None
    min_loss: float | None = None


class Level(Record):
    """One of several requested loss limits, certified with a joint confidence (Bonferroni).

    Attributes:
        max_loss: Requested limit.
        tau: τ; None if the limit cannot be certified.
        loss: Measured loss.
        bound: Bound on the loss.
    """

    max_loss: float
    tau: float | None = None
    loss: float
    bound: float


class StratumRecord(Record):
    """A stratum: the documents with one value of a field, and the queries that they answer.

    Attributes:
        value: Value of the field; None for several values together.
        tau: Threshold of a search filtered on the value; None if none is certified.
        tau_without_filter: Largest threshold that this stratum allows for a search without a filter.
        queries: Number of queries behind the certificate.
        units: Number of units of evidence.
        queries_needed: Smallest number of queries that can certify the limit.
        found: Mean of the metric without the cut.
    """

    value: str | int | float | bool | None = None
    tau: FiniteFloat | None = None
    tau_without_filter: FiniteFloat | None = None
    queries: int
    units: int
    queries_needed: int
    found: float | None = None


class StrataRecord(Record):
    """Thresholds certified for single values of one metadata field.

    Attributes:
        field: Name of the field.
        strata: Strata with enough queries.
        others: All strata with too few queries together; None if there are none.
        other_values: Values of the field in `others`.
    """

    field: str
    strata: list[StratumRecord]
    others: StratumRecord | None = None
    other_values: list[str | int | float | bool]


class PolicyCandidate(Record):
    """A candidate policy of `auto`.

    Attributes:
        kind: Kind of the policy.
        kept_fraction: Mean share of results that it keeps: at its certified cut if all candidates were certified before
            the choice, else near the allowed loss.
        standard_error: Standard error of that share.
        tau: Threshold of the certified cut; None without one.
        queries: Number of queries behind the certified cut; None without one.
        confidence: Confidence of the certified cut; None without one.
    """

    kind: PolicyKind
    kept_fraction: float
    standard_error: float
    tau: float | None = None
    queries: int | None = None
    confidence: float | None = None


class Choice(Record):
    """The choice of `auto` between policies.

    Attributes:
        fit_queries: Number of queries that fitted the model.
        choose_queries: Number of queries that, with the fitting ones, chose before anything was certified; 0 if the
            certified cuts were compared.
        certify_queries: Number of queries that certified the policy in force.
        candidates: Candidate policies.
    """

    fit_queries: int
    choose_queries: int
    certify_queries: int
    candidates: list[PolicyCandidate]


class Alternative(Record):
    """A rule that is not in force, measured on the queries of the last part of `metrics`.

    The other fields are those of PolicyRecord.

    Attributes:
        kept_fraction: Share of results that the rule would keep.
        loss: Loss that the rule would have.
    """

    method: Method
    statement: Statement | Literal["labels"] | None = None
    policy: PolicyKind
    tau: float | None = None
    psi: int | None = None
    max_loss: float | None = None
    max_empty: float | None = None
    guarantee: str | None = None
    kept_fraction: float
    loss: float


class ReliabilityBin(Record):
    """A bin of a reliability diagram: results with an estimated relevance from `lower` up to `upper`.

    Attributes:
        results: Number of results.
        relevance: Mean estimate of these results.
        relevant: Share of these results that is relevant.
        interval: That share with its 95 % interval, by document; None in releases of versions without it.
    """

    lower: float
    upper: float
    results: int
    relevance: float
    relevant: float
    interval: Interval | None = None


class RelevanceRecord(Record):
    """The model behind `relevance`, and its reliability on queries that it was not fitted on.

    Intervals are 95 % intervals by document. Figures that the writing version did not compute are None. If the model
    was fitted with questions that no document answers, the figures are of a mixture of these and the queries.

    Attributes:
        model: Kind of the model.
        features: Names of its features.
        fit_queries: Number of queries that it was fitted on.
        regularization: C of the logistic regression, chosen by the lowest cross-validated log loss.
        log_loss: The lowest cross-validated log loss.
        recalibration: Map of the log-odds, fitted on other queries.
        part: Queries that the following fields were measured on.
        queries: Number of these queries.
        documents: Number of documents that these queries are about; in a mixture, every off-topic question adds one.
        expected_calibration_error: Expected calibration error of all results.
        brier: Brier score.
        brier_skill: 1 − Brier score / Brier score of always estimating the share of relevant results.
        error: Expected calibration error with its interval.
        error_of_likely: The same for results with an estimate of 0.2 or more; None without such results.
        unanswerable_share: Share of unanswerable questions in the mixture; None, like the next two, without a
            mixture.
        unanswerable: Number of these questions that measured the model, weighted to make up the share.
        error_of_answerable: Expected calibration error of the answerable queries alone, whose relevance is too low.
        bins: Bins of the reliability diagram; in a mixture, their numbers of results are weighted and rounded.
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
    unanswerable_share: float | None = None
    unanswerable: int | None = None
    error_of_answerable: Interval | None = None
    bins: list[ReliabilityBin] = Field(repr=False)


class IsotropyRecord(Record):
    """Isotropy of the document vectors as fractions; the thresholds paper gives them in percent (§2.5, Table 7).

    Attributes:
        i_a: I_A, the second-order approximation of Mu et al. (2017), of the vectors as they are, including their common
            direction.
        i_b: I_B, IsoScore of Rudman et al. (2021), of the vectors around their mean, independent of their scale.
    """

    i_a: float
    i_b: float


class Shift(Record):
    """The size of a shift of a mean.

    Attributes:
        points: Change of the share or similarity.
        effect: Cohen's h of the variable that moves most.
    """

    points: float
    effect: float


class Shifts(Record):
    """The smallest shifts that an alarm detects.

    Attributes:
        lower: Smallest detected shift down; None if none is detected.
        higher: Smallest detected shift up; None if none is detected.
    """

    lower: Shift | None = None
    higher: Shift | None = None


class DriftRecord(Record):
    """Shifts that the drift alarms detect nine times out of ten at default settings, for independent queries.

    Attributes:
        within: Largest number of queries until detection; for `quality`, of judged replies.
        block: Number of distinct queries in a block.
        signals: Shifts by signal, of the share that the signal averages; for `topk_similarity`, of the similarity of
            all results.
    """

    within: int
    block: int
    signals: dict[str, Shifts]
