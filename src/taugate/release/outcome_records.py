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
    """The strictest threshold whose loss is at most the limit, in units of the decision score; None means no cut."""

    safe: float | None = None  # strictest threshold whose loss is shown to be within the limit
    value: float | None = None  # strictest threshold whose estimated loss is within the limit
    lower: float | None = None  # lower end of the 95 % interval of the true threshold
    upper: float | None = None  # upper end of the 95 % interval of the true threshold


class SourceRecord(Record):
    """Estimates from one source, over the queries that people ask."""

    accuracy: Interval  # share of answerable queries with a relevant result among the top K
    loss: Interval  # share of answerable queries that lose every relevant result to the threshold in force
    tau: ThresholdInterval | None = None  # threshold that the limit on the loss allows; None without a limit


class MachineRecord(Record):
    """The same estimates from the machine's scores alone, without intervals because their error is unknown."""

    accuracy: float  # mean score of accuracy
    loss: float  # mean score of the loss
    # Strictest threshold whose mean score of a loss is within the limit; None if there is none, or no limit.
    tau: float | None = None


class MachineWorth(Record):
    """How much the machine's scores contribute to one estimate."""

    r2: float  # share of the variance among judged queries that the scores explain
    weight: float  # λ, the weight of the scores; 0 if the labels decide alone
    labels: float  # number of judged queries that would give an equally narrow interval without the machine


class LabelsRecord(Record):
    """Estimates from few human judgements and a machine's scores of the unjudged queries."""

    splits: list[str]  # splits that were read
    judged: int  # number of judged queries, answerable or not
    answerable: int  # number of judged queries with an answer
    unjudged: int  # number of unjudged queries of people
    effective: float  # number of equally weighted queries that the judged ones count as (Kish)
    # What scored the results; None if nothing did.
    machine: Annotated[Machine, BeforeValidator(Machine)] | None = None  # read strictly: by its name
    alone: SourceRecord
    machine_only: MachineRecord | None = None  # estimates from the machine alone
    both: SourceRecord  # estimates from both together
    accuracy: MachineWorth  # contribution of the machine to the accuracy of `both`
    loss: MachineWorth  # contribution of the machine to the loss of `both`
    most: float | None = None  # requested limit of the loss; None without one


class UnrestrictedThreshold(Record):
    """The highest τ that the interval of the papers' rule allows if every similarity is a candidate, not only Γ."""

    tau: float
    # Share of results that it keeps, by the queries of the last part of `metrics`, refusals included.
    kept_fraction: float
    loss: float  # loss of the policy's metric on the same queries


class PolicyRecord(Record):
    """The policy in force and its evidence."""

    kind: PolicyKind
    tau: FiniteFloat | None = None  # τ, unrounded; it is compared in float32. None for `none`.
    psi: int | None = None  # percentile of Γ that is tau, for the method bootstrap
    k: int = Field(ge=1)  # the K of the top-K
    method: Method
    # Kind of the requested guarantee; "labels" if the loss is estimated from few judgements and a machine's scores;
    # None for the method bootstrap, which certifies nothing.
    statement: Statement | Literal["labels"] | None = None
    metric: Metric
    max_loss: float | None = None  # requested limit of the loss
    max_empty: float | None = None  # requested limit of the share of answerable queries that get nothing
    confidence: float  # confidence of the guarantee
    guarantee: str  # one plain sentence that says what was certified, for whom and by which theorem, or why nothing was
    certificates: list[Certificate]
    # Certified levels if several limits of the loss were requested; the first is in force unless strata lower its tau.
    levels: list[Level] = Field(default_factory=list)
    choice: Choice | None = None  # how `auto` chose this kind
    evidence: EvidenceRecord | None = None  # unit of the evidence; queries for the method bootstrap
    # What the interval allows beyond Γ, for the method bootstrap; else None.
    unrestricted: UnrestrictedThreshold | None = None
    shortage: Shortage | None = None  # what is missing if nothing could be certified; else None
    # False if a certificate was withdrawn, because it is not shown to hold for the documents of the release; else None.
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
    """The parameters of the bootstrap."""

    bootstraps: int  # m
    sample_size: int  # l, the number of queries in a bootstrap
    seed: int  # seed of all random draws
    holdout: float  # share of queries held out
    overlap_percentile: float  # percentile of the top-K similarities that gives θ


class Abstention(Record):
    """Queries that get an empty answer. Fields about unanswerable queries are None if the split lists none."""

    answerable_empty: float  # share of the answerable queries with an empty answer
    unanswerable_empty: float | None = None  # share of the unanswerable queries with an empty answer
    # Probability that an answerable query's best decision score is above an unanswerable one's; ties count half.
    auroc: float | None = None
    # Area under the risk-coverage curve: the mean share of wrong answers over all shares of answered queries.
    aurc: float | None = None


class MetricsRecord(Record):
    """Metrics of one part of the answerable queries, all within 0…1."""

    accuracy: Estimate
    ndcg: Estimate
    accuracy_at_tau: Estimate  # accuracy of the kept results
    ndcg_at_tau: Estimate  # NDCG of the kept results
    coe: Estimate  # correct overlap (COE), see `drift/signals.py`
    # Random overlap (ROE), see `drift/signals.py`; None if random documents cannot be scored.
    roe: Estimate | None = None
    kept_fraction: float  # share of results that the policy keeps
    # Normalised area under the abstention curve of the NDCG by the best score, 1 for perfect abstention and 0 for none,
    # as mteb's `nAUC_ndcg_at_K_max`; None if every query has the same NDCG.
    nauc: float | None = None
    abstention: Abstention
