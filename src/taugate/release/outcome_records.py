"""Records of what a calibration chose and measured: the policy, the resampling, the metrics, and few labels."""

from enum import StrEnum
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, FiniteFloat, model_validator
from pydantic_core import PydanticCustomError

from taugate.policy.names import NO_CUT, Metric, PolicyKind
from taugate.release.evidence import (
    MAX_FLOAT32,
    Certificate,
    Choice,
    Estimate,
    EvidenceRecord,
    Interval,
    Level,
    Record,
    Shortage,
)
from taugate.release.names import Method, Statement


class Machine(StrEnum):
    """The scores that complement the judgements: a relevance model of generated queries, or the similarity itself."""

    GENERATED = "generated"
    SIMILARITY = "similarity"

    @property
    def words(self) -> str:
        """The machine in a sentence."""
        if self is Machine.GENERATED:
            return "The machine is a relevance model, fitted on generated queries."
        return (
            "The machine is the similarity itself, because there are too few generated queries to fit a model on; "
            "taugate queries generates some."
        )


class ThresholdInterval(Record):
    """The strictest threshold whose loss is at most the limit, in units of the decision score; None means no cut.

    Attributes:
        safe: Strictest threshold whose loss is shown to be within the limit.
        value: Strictest threshold whose estimated loss is within the limit.
        lower: Lower end of the 95 % interval of the true threshold.
        upper: Upper end of the 95 % interval of the true threshold.
    """

    safe: float | None = None
    value: float | None = None
    lower: float | None = None
    upper: float | None = None


class SourceRecord(Record):
    """Estimates from one source, over the queries that people ask.

    Attributes:
        accuracy: Share of answerable queries with a relevant result among the top K.
        loss: Share of answerable queries that lose every relevant result to the threshold in force.
        tau: Threshold that the limit on the loss allows; None without a limit.
    """

    accuracy: Interval
    loss: Interval
    tau: ThresholdInterval | None = None


class MachineRecord(Record):
    """The same estimates from the machine's scores alone, without intervals because their error is unknown.

    Attributes:
        accuracy: Mean score of accuracy.
        loss: Mean score of the loss.
        tau: Strictest threshold whose mean score of a loss is within the limit; None if there is none, or no limit.
    """

    accuracy: float
    loss: float
    tau: float | None = None


class MachineWorth(Record):
    """How much the machine's scores contribute to one estimate.

    Attributes:
        r2: Share of the variance among judged queries that the scores explain.
        weight: λ, the weight of the scores; 0 if the labels decide alone.
        labels: Number of judged queries that would give an equally narrow interval without the machine.
    """

    r2: float
    weight: float
    labels: float


class LabelsRecord(Record):
    """Estimates from few human judgements and a machine's scores of the unjudged queries.

    Attributes:
        splits: Splits that were read.
        judged: Number of judged queries, answerable or not.
        answerable: Number of judged queries with an answer.
        unjudged: Number of unjudged queries of people.
        effective: Number of equally weighted queries that the judged ones count as (Kish).
        machine: What scored the results; None if nothing did.
        alone: Estimates from the labels alone.
        machine_only: Estimates from the machine alone.
        both: Estimates from both together.
        accuracy: Contribution of the machine to the accuracy of `both`.
        loss: Contribution of the machine to the loss of `both`.
        most: Requested limit of the loss; None without one.
    """

    splits: list[str]
    judged: int
    answerable: int
    unjudged: int
    effective: float
    machine: Annotated[Machine, BeforeValidator(Machine)] | None = None  # read strictly: by its name
    alone: SourceRecord
    machine_only: MachineRecord | None = None
    both: SourceRecord
    accuracy: MachineWorth
    loss: MachineWorth
    most: float | None = None


class UnrestrictedThreshold(Record):
    """The highest τ that the interval of the papers' rule allows if every similarity is a candidate, not only Γ.

    Attributes:
        tau: This τ.
        kept_fraction: Share of results that it keeps, by the queries of the last part of `metrics`, refusals included.
        loss: Loss of the policy's metric on the same queries.
    """

    tau: float
    kept_fraction: float
    loss: float


class PolicyRecord(Record):
    """The policy in force and its evidence.

    Attributes:
        kind: Kind of the policy.
        tau: τ, unrounded; it is compared in float32. None for `none`.
        psi: Percentile of Γ that is tau, for the method bootstrap.
        unrestricted: What the interval allows beyond Γ, for the method bootstrap; else None.
        k: The K of the top-K.
        method: Method that chose tau.
        statement: Kind of the requested guarantee; "labels" if the loss is estimated from few judgements and a
            machine's scores; None for the method bootstrap, which certifies nothing.
        metric: Metric that losses are measured in.
        max_loss: Requested limit of the loss.
        max_empty: Requested limit of the share of answerable queries that get nothing.
        confidence: Confidence of the guarantee.
        guarantee: One plain sentence that says what was certified, for whom and by which theorem, or why nothing was.
        certificates: Certificates of the limits.
        levels: Certified levels if several limits of the loss were requested; the first is in force unless strata lower
            its tau.
        choice: How `auto` chose this kind.
        evidence: Unit of the evidence; queries for the method bootstrap.
        shortage: What is missing if nothing could be certified; else None.
        certified: False if a certificate was withdrawn, because it is not shown to hold for the documents of the
            release; else None.
    """

    kind: PolicyKind
    tau: FiniteFloat | None = None
    psi: int | None = None
    k: int = Field(ge=1)
    method: Method
    statement: Statement | Literal["labels"] | None = None
    metric: Metric
    max_loss: float | None = None
    max_empty: float | None = None
    confidence: float
    guarantee: str
    certificates: list[Certificate]
    levels: list[Level] = Field(default_factory=list)
    choice: Choice | None = None
    evidence: EvidenceRecord | None = None
    unrestricted: UnrestrictedThreshold | None = None
    shortage: Shortage | None = None
    certified: Literal[False] | None = None

    @property
    def threshold(self) -> np.float32 | None:
        """τ in float32, as scores are compared with it; None without a cut."""
        return None if self.tau is None or self.tau == NO_CUT else np.float32(self.tau)

    @model_validator(mode="after")
    def _tau_fits_the_kind(self) -> Self:
        if (self.tau is None) != (self.kind == "none"):
            raise PydanticCustomError("tau", "a policy has a tau unless its kind is none")
        if self.tau is not None and abs(self.tau) > MAX_FLOAT32:
            raise PydanticCustomError("tau", "tau is beyond float32, in which it is compared")
        return self


class BootstrapRecord(Record):
    """The parameters of the bootstrap.

    Attributes:
        bootstraps: m, the number of bootstraps.
        sample_size: l, the number of queries in a bootstrap.
        seed: Seed of all random draws.
        holdout: Share of queries held out.
        overlap_percentile: Percentile of the top-K similarities that gives θ.
    """

    bootstraps: int
    sample_size: int
    seed: int
    holdout: float
    overlap_percentile: float


class Abstention(Record):
    """Queries that get an empty answer. Fields about unanswerable queries are None if the split lists none.

    Attributes:
        answerable_empty: Share of the answerable queries with an empty answer.
        unanswerable_empty: Share of the unanswerable queries with an empty answer.
        auroc: Probability that an answerable query's best decision score is above an unanswerable one's; ties count
            half.
        aurc: Area under the risk-coverage curve: the mean share of wrong answers over all shares of answered queries.
    """

    answerable_empty: float
    unanswerable_empty: float | None = None
    auroc: float | None = None
    aurc: float | None = None


class MetricsRecord(Record):
    """Metrics of one part of the answerable queries, all within 0…1.

    Attributes:
        accuracy: Accuracy of the top-K.
        ndcg: NDCG of the top-K.
        accuracy_at_tau: Accuracy of the kept results.
        ndcg_at_tau: NDCG of the kept results.
        coe: Correct overlap (COE), see `drift/signals.py`.
        roe: Random overlap (ROE), see `drift/signals.py`; None if random documents cannot be scored.
        kept_fraction: Share of results that the policy keeps.
        nauc: Normalised area under the abstention curve of the NDCG by the best score, 1 for perfect abstention and 0
            for none, as mteb's `nAUC_ndcg_at_K_max`; None if every query has the same NDCG.
        abstention: Empty answers.
    """

    accuracy: Estimate
    ndcg: Estimate
    accuracy_at_tau: Estimate
    ndcg_at_tau: Estimate
    coe: Estimate
    roe: Estimate | None = None
    kept_fraction: float
    nauc: float | None = None
    abstention: Abstention
