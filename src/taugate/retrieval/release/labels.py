"""Record of a calibration on few human judgements, with estimates from the labels, the machine, and both together."""

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator

from taugate.retrieval.release.evidence import Interval, Record


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
