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
    """A metric with its interval."""

    # Interval with documents drawn instead of queries; None if queries are the units.
    by_document: Interval | None = None


# How labels were drawn: queries one by one, or documents with all queries about them.
Drawn = Literal["queries", "documents"]


class EvidenceRecord(Record):
    """The unit of evidence, which counts as one independent draw: a query, or all queries on one document."""

    unit: Literal["query", "document"]
    units: int
    # Σn² / Σn for n queries per document, the largest possible effect of shared documents. Above 1.1, documents are the
    # units.
    design_effect: float
    drawn: Drawn | None = None  # how the labels were drawn; None if documents are assumed


class Certificate(Record):
    """A limit on a loss that was certified, or that could not be certified."""

    limit: str  # limited metric: accuracy, ndcg or empty
    most: float  # largest allowed share of lost queries
    queries: int  # number of queries behind the certificate
    effective_queries: float  # number of independent queries that these count as
    unit: Literal["query", "document"] = "query"
    units: int | None = None
    found: float | None = None  # mean of the metric without the cut; losses are relative to it
    loss: float  # share lost at τ
    bound: float  # bound on the loss as the guarantee computes it; at most `most` if certified
    upper: float | None = None  # one-sided upper confidence limit of the loss, whatever the guarantee
    queries_needed: int  # smallest number of queries that can certify the limit
    # Largest number of queries that a document counts for in `loss`, `bound`, `upper` and `found`; None if every query
    # counts as one.
    count_at_most: int | None = None


class Shortage(Record):
    """What is missing if no limit could be certified with high probability."""

    # Ids of the labelled queries whose best relevant result scores lowest, at most 20: they hold τ down.
    lowest: list[str]
    # Options of `taugate calibrate` with which these labels certify the limit.
    options: list[str] = Field(default_factory=list)
    # Further queries, about documents without any, with a chance of 8 in 10 to certify the limit; None if unknown, or
    # if it is impossible.
    queries: int | None = None
    documents: int | None = None  # number of documents that the further queries are about
    # Smallest loss that any test can certify with the documents of the corpus, however many queries are labelled; None
    # if the requested limit is possible.
    min_loss: float | None = None


class Level(Record):
    """One of several requested loss limits, certified with a joint confidence (Bonferroni)."""

    max_loss: float
    tau: float | None = None  # τ; None if the limit cannot be certified
    loss: float
    bound: float


class StratumRecord(Record):
    """A stratum: the documents with one value of a field, and the queries that they answer."""

    value: str | int | float | bool | None = None  # value of the field; None for several values together
    tau: FiniteFloat | None = None  # threshold of a search filtered on the value; None if none is certified
    # Largest threshold that this stratum allows for a search without a filter.
    tau_without_filter: FiniteFloat | None = None
    queries: int  # number of queries behind the certificate
    units: int
    queries_needed: int  # smallest number of queries that can certify the limit
    found: float | None = None  # mean of the metric without the cut


class StrataRecord(Record):
    """Thresholds certified for single values of one metadata field."""

    field: str
    strata: list[StratumRecord]  # strata with enough queries
    others: StratumRecord | None = None  # all strata with too few queries together; None if there are none
    other_values: list[str | int | float | bool]  # values of the field in `others`


class PolicyCandidate(Record):
    """A candidate policy of `auto`."""

    kind: PolicyKind
    # Mean share of results that it keeps: at its certified cut if all candidates were certified before the choice, else
    # near the allowed loss.
    kept_fraction: float
    standard_error: float  # standard error of that share
    tau: float | None = None  # threshold of the certified cut; None without one
    queries: int | None = None  # number of queries behind the certified cut; None without one
    confidence: float | None = None  # confidence of the certified cut; None without one


class Choice(Record):
    """The choice of `auto` between policies."""

    fit_queries: int  # number of queries that fitted the model
    # Number of queries that, with the fitting ones, chose before anything was certified; 0 if the certified cuts were
    # compared.
    choose_queries: int
    certify_queries: int  # number of queries that certified the policy in force
    candidates: list[PolicyCandidate]


class Alternative(Record):
    """A rule that is not in force, measured on the queries of the last part of `metrics`.

    The other fields are those of PolicyRecord.
    """

    method: Method
    statement: Statement | Literal["labels"] | None = None
    policy: PolicyKind
    tau: float | None = None
    psi: int | None = None
    max_loss: float | None = None
    max_empty: float | None = None
    guarantee: str | None = None
    kept_fraction: float  # share of results that the rule would keep
    loss: float  # loss that the rule would have


class ReliabilityBin(Record):
    """A bin of a reliability diagram: results with an estimated relevance from `lower` up to `upper`."""

    lower: float
    upper: float
    results: int
    relevance: float  # mean estimate of these results
    relevant: float  # share of these results that is relevant
    # That share with its 95 % interval, by document; None in releases of versions without it.
    interval: Interval | None = None


class RelevanceRecord(Record):
    """The model behind `relevance`, and its reliability on queries that it was not fitted on.

    Intervals are 95 % intervals by document. Figures that the writing version did not compute are None. If the model
    was fitted with questions that no document answers, the figures are of a mixture of these and the queries.
    """

    model: Literal["logistic"] = "logistic"
    features: list[str]
    fit_queries: int
    regularization: float  # C of the logistic regression, chosen by the lowest cross-validated log loss
    log_loss: float  # the lowest cross-validated log loss
    recalibration: Literal["beta", "platt", "none"] | None = None  # map of the log-odds, fitted on other queries
    part: Literal["calibration", "heldout"]  # queries that the following fields were measured on
    queries: int
    # Number of documents that these queries are about; in a mixture, every off-topic question adds one.
    documents: int | None = None
    expected_calibration_error: float
    brier: Interval | None = None  # Brier score
    # 1 − Brier score / Brier score of always estimating the share of relevant results.
    brier_skill: Interval | None = None
    error: Interval | None = None  # expected calibration error with its interval
    # The same for results with an estimate of 0.2 or more; None without such results.
    error_of_likely: Interval | None = None
    # Share of unanswerable questions in the mixture; None, like the next two, without a mixture.
    unanswerable_share: float | None = None
    unanswerable: int | None = None  # number of these questions that measured the model, weighted to make up the share
    # Expected calibration error of the answerable queries alone, whose relevance is too low.
    error_of_answerable: Interval | None = None
    # Bins of the reliability diagram; in a mixture, their numbers of results are weighted and rounded.
    bins: list[ReliabilityBin] = Field(repr=False)


class IsotropyRecord(Record):
    """Isotropy of the document vectors as fractions; the thresholds paper gives them in percent (§2.5, Table 7)."""

    # I_A, the second-order approximation of Mu et al. (2017), of the vectors as they are, including their common
    # direction.
    i_a: float
    i_b: float  # I_B, IsoScore of Rudman et al. (2021), of the vectors around their mean, independent of their scale.


class Shift(Record):
    """The size of a shift of a mean."""

    points: float  # change of the share or similarity
    effect: float  # Cohen's h of the variable that moves most


class Shifts(Record):
    """The smallest shifts that an alarm detects."""

    lower: Shift | None = None  # smallest detected shift down; None if none is detected
    higher: Shift | None = None  # smallest detected shift up; None if none is detected


class DriftRecord(Record):
    """Shifts that the drift alarms detect nine times out of ten at default settings, for independent queries."""

    within: int  # largest number of queries until detection; for `quality`, of judged replies
    block: int  # number of distinct queries in a block
    # Shifts by signal, of the share that the signal averages; for `topk_similarity`, of the similarity of all results.
    signals: dict[str, Shifts]
